"""Services to simulate: plain costs of steps, schedulers and caches."""

from collections.abc import Sequence
from dataclasses import dataclass

from k31ctl.core.arrivals import Arrival, ClosedLoop, Load, OpenLoop, RequestSize
from k31ctl.core.simulate import Batching, KvBudget, Policy, Simulation, StepCost, simulate


@dataclass(frozen=True)
class Line:
    """A step's seconds as a sum of straight lines."""

    step: float = 0.0
    per_sequence: float = 0.0
    per_context_token: float = 0.0
    per_prompt_token: float = 0.0
    per_pair: float = 0.0

    def step_s(
        self,
        *,
        num_decoding: int,
        context_tokens: float,
        prefill_tokens: int,
        prefill_past_tokens: float,
    ) -> float:
        return (
            self.step
            + num_decoding * (self.per_sequence + self.per_context_token * context_tokens)
            + prefill_tokens * self.per_prompt_token
            + self.per_pair * prefill_tokens * (prefill_past_tokens + prefill_tokens / 2)
        )


@dataclass(frozen=True)
class Roof:
    """The greater of two costs, and a curve: what a speed model may look like."""

    one: Line
    other: Line
    power: float = 1.0

    def step_s(
        self,
        *,
        num_decoding: int,
        context_tokens: float,
        prefill_tokens: int,
        prefill_past_tokens: float,
    ) -> float:
        one, other = (
            cost.step_s(
                num_decoding=num_decoding,
                context_tokens=context_tokens**self.power,
                prefill_tokens=prefill_tokens,
                prefill_past_tokens=prefill_past_tokens,
            )
            for cost in (self.one, self.other)
        )
        return max(one, other)


STEADY = Line(step=0.02, per_sequence=1e-4, per_context_token=2e-8, per_prompt_token=4e-5)
ROOMY = KvBudget(total_units=10**9, page_tokens=64, units_per_page=1, fixed_units=1)


def batching(
    policy: Policy = Policy.MIXED,
    *,
    chunk_tokens: int = 8192,
    budget_per_decode: int = 0,
    max_running: int = 256,
    reserved_output_fraction: float = 0.0,
    tokens_per_step: float = 1.0,
) -> Batching:
    return Batching(
        policy=policy,
        chunk_tokens=chunk_tokens,
        budget_per_decode=budget_per_decode,
        max_running=max_running,
        reserved_output_fraction=reserved_output_fraction,
        tokens_per_step=tokens_per_step,
    )


def size(prompt: int, output: int, cached: int = 0) -> RequestSize:
    return RequestSize(prompt_tokens=prompt, output_tokens=output, cached_tokens=cached)


def at(*arrivals: tuple[float, RequestSize]) -> OpenLoop:
    return OpenLoop(arrivals=tuple(Arrival(arrival_s=t, size=s) for t, s in arrivals))


def users(num_users: int, sizes: Sequence[RequestSize], *, think_s: float = 0.0) -> ClosedLoop:
    return ClosedLoop(sizes=tuple(sizes), num_users=num_users, think_s=think_s)


def run(
    load: Load,
    cost: StepCost = STEADY,
    rules: Batching | None = None,
    kv: KvBudget = ROOMY,
    *,
    step_by_step: bool = False,
) -> Simulation:
    return simulate(load, batching=rules or batching(), kv=kv, cost=cost, step_by_step=step_by_step)
