"""What one instance of each pool sustains, and how many of each are in balance."""

from dataclasses import dataclass

from k31ctl.core.instance import Instance
from k31ctl.core.service import decode_latency_s, prefill_rate
from k31ctl.core.workload import Workload
from k31ctl.values import frozen

# What a prefill instance keeps of its rate while it also hands requests over: 20,241 prompt
# tokens/s with 64 requests waiting against 93,343 / 4 of an instance that only prefills
# (whn09/kimi-k3-sglang, 2026-09-05, eight B300 under SGLang).
HANDOVER_FRACTION = 20_241 / (93_343 / 4)
# Larger pools come ever nearer to the exact ratio; a fiftieth is not worth their GPUs.
NEAR_BEST = 0.98


@frozen
class Sizes:
    """Instances of each pool, and the requests per second that both can sustain."""

    prefill: int
    decode: int
    num_gpus: int
    requests_per_s: float

    @property
    def requests_per_s_per_gpu(self) -> float:
        """Requests per second over all GPUs of both pools."""
        return self.requests_per_s / self.num_gpus


def prefill_requests_per_s(prefill: Instance, workload: Workload) -> float:
    """Prompts per second of a busy prefill instance, hand-over included."""
    groups = prefill.case.layout.dp
    rate = prefill_rate(
        prefill.step,
        requests=max(1.0, (workload.concurrency or 1) / groups),
        prompt_tokens=workload.uncached_tokens,
        past_tokens=workload.prompt_tokens - workload.uncached_tokens,
        chunk_tokens=prefill.case.chunk_tokens,
    )
    return HANDOVER_FRACTION * groups * rate / workload.uncached_tokens


def decode_requests_per_s(decode: Instance, workload: Workload) -> float:
    """Answers per second of one decode instance that has as many requests as it can use."""
    groups = decode.case.layout.dp
    most = min(decode.most_running, max(1.0, (workload.concurrency or 1) / groups))
    return groups * most / answer_s(decode, workload, most)


def best_sizes(
    prefill: Instance,
    decode: Instance,
    workload: Workload,
    *,
    num_nodes: int,
    num_prefill: int | None,
    num_decode: int | None,
) -> Sizes | None:
    """The smallest pools on so many nodes that sustain nearly most per GPU; None where none fit.

    A number of instances that is given stays.
    """
    return Sizing(
        prefill,
        decode,
        prefill_requests_per_s(prefill, workload),
        decode_requests_per_s(decode, workload),
    ).best(num_nodes, num_prefill=num_prefill, num_decode=num_decode)


@dataclass(frozen=True, slots=True)
class Sizing:
    """Pools of two kinds of instances, by what one of each sustains in requests per second."""

    prefill: Instance
    decode: Instance
    prefill_rate: float
    decode_rate: float

    def of(self, prefill: int, decode: int) -> Sizes:
        """Pools of so many instances."""
        return Sizes(
            prefill=prefill,
            decode=decode,
            num_gpus=prefill * self.prefill.num_gpus + decode * self.decode.num_gpus,
            requests_per_s=min(prefill * self.prefill_rate, decode * self.decode_rate),
        )

    def best(
        self, num_nodes: int, *, num_prefill: int | None = None, num_decode: int | None = None
    ) -> Sizes | None:
        """For each decode pool only the two prefill pools around the balance can be best."""
        found = []
        for decode in self._decodes(num_nodes, num_decode):
            most = (num_nodes - decode * self.decode.num_nodes) // self.prefill.num_nodes
            balanced = int(decode * self.decode_rate / self.prefill_rate)
            counts = {min(most, max(1, balanced + extra)) for extra in (0, 1)}
            if num_prefill is not None:
                counts = {num_prefill}
            found += [self.of(count, decode) for count in counts if 1 <= count <= most]
        most_per_gpu = max((each.requests_per_s_per_gpu for each in found), default=0.0)
        enough = [s for s in found if s.requests_per_s_per_gpu >= NEAR_BEST * most_per_gpu]
        return min(enough, key=lambda s: (s.num_gpus, -s.requests_per_s), default=None)

    def _decodes(self, num_nodes: int, given: int | None) -> range:
        """Decode pools that leave room for prefill, or the one that was given."""
        if given is not None:
            return range(given, given + 1)
        return range(1, (num_nodes - self.prefill.num_nodes) // self.decode.num_nodes + 1)


def answer_s(decode: Instance, workload: Workload, running: float) -> float:
    """Seconds that the answers of so many running requests take on one attention group."""
    one = decode_latency_s(
        decode.step,
        sequences=running,
        context_tokens=workload.prompt_tokens + workload.output_tokens / 2,
        positions=decode.case.positions,
    )
    return one * max(1.0, (workload.output_tokens - 1) / decode.case.tokens_per_step)
