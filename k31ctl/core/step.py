"""How long one engine step takes on one replica: a sum of parts, each bound by one resource.

A decode step gives each running sequence one token (several positions with a draft model); a
prefill chunk computes prompt tokens. Within a stage parts follow one another; stages of a pipeline
work on different batches at once.
"""

from collections.abc import Sequence
from math import exp, log, sqrt

from k31ctl.core.estimate import Bound
from k31ctl.core.figure import Basis
from k31ctl.core.rates import Rates
from k31ctl.core.traffic import StageTraffic, Traffic
from k31ctl.values import frozen

# A reduction of middling size runs below the rate of a large one: as if so much more were sent.
REDUCE_RAMP_BYTES = 4 << 20
DCP_COLLECTIVES = 2
# Dispatch goes out in 8 bits, what comes back in 16.
EXCHANGE_BYTES_PER_HIDDEN_BYTE = 1.5

PREFILL_KNOWN = {
    "dense": "dense_matmul",
    "experts": "expert_matmul",
    "attention": "dense_matmul",
    "index": "dense_matmul",
    "linear": "dense_matmul",
    "launch": "prefill_launch",
}


@frozen
class Part:
    """One part of a step: its time, what bounds it, and the least that physics allows.

    ``limit_s`` is bytes or operations over the peak rate, 0 for what is only waiting.
    """

    name: str
    seconds: float
    bound_by: Bound
    limit_s: float
    spread: float
    basis: Basis
    source: str


@frozen
class Replica:
    """Ranks that work on one step together.

    ``groups`` attention groups of ``attention_ranks`` each have their own sequences and share the
    experts, which lie on ``moe_ranks``; ``exchanges_tokens`` where tokens travel to their experts.
    """

    groups: int
    attention_ranks: int
    moe_ranks: int
    exchanges_tokens: bool
    dcp: int
    pp: int


# Name, bytes, bytes per second, operations, operations per second, seconds that only pass.
Load = tuple[str, float, float, float, float, float]


class StepModel:
    """Times of steps on one replica, from counts and rates that never change."""

    __slots__ = ("counted", "rates", "replica")

    def __init__(self, counted: Traffic, rates: Rates, replica: Replica) -> None:
        self.counted, self.rates, self.replica = counted, rates, replica

    def distinct_experts(self, tokens: float) -> float:
        """Experts of one layer that the fullest rank reads for so many tokens in the step.

        Symbols: E experts, e on the rank, K per token, T tokens, c concentration, G ranks.
        Formula: mean e p with p = 1 - (1 - K/E)^(T (1 - c)); the fullest of G ranks lies
        sqrt(2 ln G) standard deviations sqrt(e p (1 - p)) above it, never above e.
        """
        t = self.counted
        if not t.num_experts:
            return 0.0
        E, e, K, G = t.num_experts, t.local_experts, t.experts_per_token, t.expert_ranks
        T = max(1.0, tokens * (1 - self.rates.routing_concentration))
        p = 1 - exp(T * log(1 - K / E))
        if G == 1:
            return e * p
        return min(float(e), e * p + sqrt(2 * log(G) * e * p * (1 - p)))

    def reduce_s(self, num_bytes: float, *, moe: bool) -> float:
        """One all-reduce of so many bytes on each rank, over the attention or the expert ranks."""
        r, ranks = self.rates, self.replica.moe_ranks if moe else self.replica.attention_ranks
        if ranks <= 1:
            return 0.0
        sent = (num_bytes + min(num_bytes, REDUCE_RAMP_BYTES)) * 2 * (ranks - 1) / ranks
        if moe:
            return r.moe_reduce_s + sent / r.moe_reduce_bytes_per_s
        return r.all_reduce_s + sent / r.all_reduce_bytes_per_s

    def decode_s(self, *, sequences: float, context_tokens: float, positions: int) -> list[float]:
        """Seconds of a decode step on each stage.

        ``sequences`` run on each attention group with ``context_tokens`` each, and every one
        computes ``positions`` tokens (1 without a draft model).
        """
        return [
            _seconds(self._decode_loads(i, stage, sequences, context_tokens, positions))
            for i, stage in enumerate(self.counted.stages)
        ]

    def prefill_s(self, *, tokens: float, past_tokens: float, sequences: float) -> list[float]:
        """Seconds of a chunk of prompt tokens on each stage.

        A token sees ``past_tokens`` on average; ``sequences`` prompts end in the chunk.
        """
        return [
            _seconds(self._prefill_loads(i, stage, tokens, past_tokens, sequences))
            for i, stage in enumerate(self.counted.stages)
        ]

    def decode_parts(
        self, *, sequences: float, context_tokens: float, positions: int
    ) -> list[Part]:
        """The parts of a decode step, stages added up."""
        return self._parts(
            [
                self._decode_loads(i, stage, sequences, context_tokens, positions)
                for i, stage in enumerate(self.counted.stages)
            ],
            {},
        )

    def prefill_parts(self, *, tokens: float, past_tokens: float, sequences: float) -> list[Part]:
        """The parts of a chunk of prompt tokens, stages added up."""
        return self._parts(
            [
                self._prefill_loads(i, stage, tokens, past_tokens, sequences)
                for i, stage in enumerate(self.counted.stages)
            ],
            PREFILL_KNOWN,
        )

    def _decode_loads(
        self, index: int, stage: StageTraffic, sequences: float, context: float, positions: int
    ) -> list[Load]:
        t, r = self.counted, self.rates
        tokens = sequences * positions
        everywhere = tokens * self.replica.groups
        experts = stage.moe_layers * stage.expert_bytes * self.distinct_experts(everywhere)
        seen = context if t.topk is None else min(context, t.topk)
        pairs = stage.full_layers * sequences * seen
        passes = stage.num_layers * tokens * r.activation_passes * t.hidden_bytes
        # Where sequences go one by one, each after the first has its own launches of attention.
        layers = stage.num_layers + r.own_launch_fraction * (sequences - 1) * stage.full_layers
        loads = [
            (
                "dense",
                stage.dense_bytes + stage.head_bytes,
                r.dense_bytes_per_s,
                2 * tokens * (stage.dense_params + stage.head_params),
                r.dense_flops_per_s,
                0.0,
            ),
            (
                "experts",
                experts,
                r.expert_bytes_per_s,
                everywhere * stage.expert_flops,
                r.expert_flops_per_s,
                0.0,
            ),
            (
                "attention",
                pairs * t.latent_row_bytes,
                r.attention_bytes_per_s,
                positions * pairs * t.attention_pair_flops,
                r.dense_flops_per_s,
                0.0,
            ),
            ("activations", passes, r.dense_bytes_per_s, 0.0, 1.0, 0.0),
            ("launch", 0.0, 1.0, 0.0, 1.0, layers * r.layer_overhead_s),
        ]
        if stage.linear_layers:
            states = 2 * stage.linear_layers * sequences * t.state_bytes
            loads.append(("state", states, r.state_bytes_per_s, 0.0, 1.0, 0.0))
        if t.topk is not None:
            scored = stage.full_layers * sequences * context
            loads.append(
                (
                    "index",
                    scored * t.index_row_bytes,
                    r.attention_bytes_per_s,
                    positions * scored * t.index_pair_flops,
                    r.dense_flops_per_s,
                    0.0,
                )
            )
        loads += self._communication(stage, tokens)
        if index == len(t.stages) - 1:
            loads.append(("step", 0.0, 1.0, 0.0, 1.0, r.step_overhead_s))
            if t.draft_bytes:
                flops = 2 * tokens * t.draft_params
                loads.append(
                    ("draft", t.draft_bytes, r.dense_bytes_per_s, flops, r.dense_flops_per_s, 0.0)
                )
        return loads

    def _prefill_loads(
        self, index: int, stage: StageTraffic, tokens: float, past: float, sequences: float
    ) -> list[Load]:
        t, r = self.counted, self.rates
        everywhere = tokens * self.replica.groups
        experts = stage.moe_layers * stage.expert_bytes * self.distinct_experts(everywhere)
        seen = past if t.topk is None else min(past, t.topk)
        pair_flops = t.prefill_pair_flops if t.topk is None else t.attention_pair_flops
        rate = r.prefill_flops_per_s
        passes = stage.num_layers * tokens * r.activation_passes * t.hidden_bytes
        # As in decoding, but prompts that go one by one do so in every layer.
        layers = stage.num_layers * (1 + r.own_launch_fraction * (sequences - 1))
        loads = [
            (
                "dense",
                stage.dense_bytes,
                r.dense_bytes_per_s,
                2 * (tokens * stage.dense_params + sequences * stage.head_params),
                rate,
                0.0,
            ),
            (
                "experts",
                experts,
                r.expert_bytes_per_s,
                everywhere * stage.expert_flops,
                r.expert_prefill_flops_per_s,
                0.0,
            ),
            ("attention", 0.0, 1.0, stage.full_layers * tokens * seen * pair_flops, rate, 0.0),
            ("linear", 0.0, 1.0, stage.linear_layers * tokens * t.state_token_flops, rate, 0.0),
            ("activations", passes, r.dense_bytes_per_s, 0.0, 1.0, 0.0),
            ("launch", 0.0, 1.0, 0.0, 1.0, layers * r.prefill_layer_overhead_s),
        ]
        if t.topk is not None:
            scored = stage.full_layers * tokens * past * t.index_pair_flops
            loads.append(("index", 0.0, 1.0, scored, rate, 0.0))
        loads += self._communication(stage, tokens)
        if index == len(t.stages) - 1:
            loads.append(("step", 0.0, 1.0, 0.0, 1.0, r.step_overhead_s))
        return loads

    def _communication(self, stage: StageTraffic, tokens: float) -> list[Load]:
        """Collectives of one stage: all-reduces, or tokens sent to their experts; the next hop."""
        replica, r, t = self.replica, self.rates, self.counted
        num_bytes = tokens * t.hidden_bytes
        loads: list[Load] = []
        seconds = stage.num_layers * self.reduce_s(num_bytes, moe=False)
        if replica.dcp > 1:
            sent = tokens * t.context_parallel_bytes * (replica.dcp - 1) / replica.dcp
            gathers = DCP_COLLECTIVES * r.all_reduce_s + sent / r.all_reduce_bytes_per_s
            seconds += stage.full_layers * gathers
        if replica.exchanges_tokens:
            copies = min(replica.moe_ranks, t.experts_per_token)
            sent = EXCHANGE_BYTES_PER_HIDDEN_BYTE * num_bytes * copies / replica.attention_ranks
            exchange = r.all_to_all_s + sent / r.all_to_all_bytes_per_s
            loads.append(("all_to_all", 0.0, 1.0, 0.0, 1.0, stage.moe_layers * exchange))
        else:
            seconds += stage.num_layers * self.reduce_s(num_bytes, moe=True)
        if seconds:
            loads.append(("all_reduce", 0.0, 1.0, 0.0, 1.0, seconds))
        if replica.pp > 1:
            sent = num_bytes / replica.attention_ranks
            hop = r.hop_s + sent / r.hop_bytes_per_s
            loads.append(("pipeline", 0.0, 1.0, 0.0, 1.0, hop))
        return loads

    def _parts(self, stages: Sequence[Sequence[Load]], aliases: dict[str, str]) -> list[Part]:
        r = self.rates
        found: dict[str, Part] = {}
        for stage in stages:
            for name, num_bytes, bytes_per_s, flops, flops_per_s, fixed_s in stage:
                memory_s, compute_s = num_bytes / bytes_per_s, flops / flops_per_s
                seconds = max(memory_s, compute_s) + fixed_s
                if not seconds:
                    continue
                bound = Bound.MEMORY if memory_s >= compute_s else Bound.COMPUTE
                if fixed_s:
                    bound = Bound.LAUNCH if name in ("launch", "step") else Bound.NETWORK
                low_precision = 2 if name == "experts" else 1
                limit = max(
                    num_bytes / r.peak_bytes_per_s, flops / (low_precision * r.peak_flops_per_s)
                )
                before = found.get(name)
                known = r.known[aliases.get(name, name)]
                found[name] = Part(
                    name=name,
                    seconds=seconds + (before.seconds if before else 0.0),
                    bound_by=bound,
                    limit_s=limit + (before.limit_s if before else 0.0),
                    spread=known.spread,
                    basis=known.basis,
                    source=known.source,
                )
        return list(found.values())


def _seconds(loads: Sequence[Load]) -> float:
    total = 0.0
    for _, num_bytes, bytes_per_s, flops, flops_per_s, fixed_s in loads:
        memory_s, compute_s = num_bytes / bytes_per_s, flops / flops_per_s
        total += (memory_s if memory_s >= compute_s else compute_s) + fixed_s
    return total


def spread_of(parts: Sequence[Part]) -> float:
    """Standard deviation of the logarithm of a sum of parts that err independently."""
    total = sum(part.seconds for part in parts)
    if not total:
        return 0.0
    return sqrt(sum((part.seconds / total * part.spread) ** 2 for part in parts))
