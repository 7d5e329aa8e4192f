"""The closed form of a service against the same load played out step by step."""

from dataclasses import dataclass
from statistics import fmean

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from k31ctl.core.arrivals import ClosedLoop
from k31ctl.core.service import Service, closed_loop
from k31ctl.core.step import Replica
from tests.core.services import ROOMY, Line, batching, run, size

CHUNK = 512
ONE = Replica(groups=1, attention_ranks=1, moe_ranks=1, exchanges_tokens=False, dcp=1, pp=1)


@dataclass(frozen=True)
class Steps:
    """A decode step and a chunk of prompts as straight lines, one after the other in one step."""

    decode: Line
    chunk: Line
    replica: Replica = ONE

    def decode_s(self, *, sequences: float, context_tokens: float, positions: int) -> list[float]:
        return [self.decode.step + self.decode.per_sequence * sequences]

    def prefill_s(self, *, tokens: float, past_tokens: float, sequences: float) -> list[float]:
        return [self.chunk.step + self.chunk.per_prompt_token * tokens]

    def step_s(
        self,
        *,
        num_decoding: int,
        context_tokens: float,
        prefill_tokens: int,
        prefill_past_tokens: float,
    ) -> float:
        seconds = 0.0
        if num_decoding:
            seconds += self.decode.step + self.decode.per_sequence * num_decoding
        if prefill_tokens:
            seconds += self.chunk.step + self.chunk.per_prompt_token * prefill_tokens
        return seconds


STEPS = Steps(
    decode=Line(step=0.01, per_sequence=8e-4), chunk=Line(step=0.01, per_prompt_token=3e-4)
)


def said(users: int, prompt: int, output: int, *, staggered: float) -> Service:
    return closed_loop(
        STEPS,
        concurrency=users,
        most_running=256,
        prompt_tokens=prompt,
        uncached_tokens=prompt,
        output_tokens=output,
        positions=1,
        tokens_per_step=1.0,
        chunk_tokens=CHUNK,
        staggered_fraction=staggered,
    )


def played(users: int, prompt: int, output: int) -> tuple[float, float, float]:
    """Means of TTFT, TPOT and time end to end of a loop that has gone on for a while.

    The next prompt comes a moment after the last answer: the next step has begun by then.
    """
    sizes = (size(prompt, output),) * (9 * users)
    load = ClosedLoop(sizes=sizes, num_users=users, think_s=1e-6)
    found = run(load, STEPS, batching(chunk_tokens=CHUNK), ROOMY).records
    kept = sorted(found, key=lambda r: r.arrival_s)[3 * users : 7 * users]
    tpots = [r.tpot_s for r in kept if r.tpot_s is not None]
    return fmean(r.ttft_s for r in kept), fmean(tpots), fmean(r.e2e_s for r in kept)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(
    users=st.integers(4, 16),
    prompt=st.integers(100, 2300),
    output=st.integers(24, 128),
)
def test_a_loop_that_mixes_prompts_into_steps_goes_on_as_the_form_says(
    users: int, prompt: int, output: int
) -> None:
    assume(users * prompt >= 3 * CHUNK)
    found, (ttft, tpot, e2e) = (
        said(users, prompt, output, staggered=1.0),
        played(users, prompt, output),
    )
    assert found.e2e_s == pytest.approx(e2e, rel=0.08)
    assert found.tpot_s == pytest.approx(tpot, rel=0.15)
    assert found.ttft_s == pytest.approx(ttft, rel=0.40)


def test_prompts_that_fit_one_chunk_come_and_go_together() -> None:
    together, spread = (said(4, 100, 32, staggered=share) for share in (0.0, 1.0))
    assert together == spread


def test_few_rounds_are_between_the_first_and_all_others() -> None:
    first, half, later = (said(8, 400, 32, staggered=share) for share in (0.0, 0.5, 1.0))
    assert half.ttft_s == pytest.approx((first.ttft_s + later.ttft_s) / 2)
    assert first.ttft_s > 1.5 * later.ttft_s
    assert first.e2e_s == half.e2e_s == later.e2e_s
