"""The loop from measurement to plan closes: what is fitted to some loads foretells another."""

from pathlib import Path

from tests.bench.calibration_loop import closed_loop, tiny_plan
from tests.bench.timed_engine import Timing, timed_engine

TIMING = Timing(step_s=0.03, sequence_s=0.004, prefill_s=0.05, prompt_s=0.02, prompt_token_s=0.0008)


def test_a_plan_calibrated_on_some_loads_foretells_another(tmp_path: Path) -> None:
    with timed_engine(TIMING) as url:
        found = closed_loop(
            tmp_path,
            url,
            plan=tiny_plan(tmp_path),
            loads=(("1,4,16", 16, 16), ("1,4", 256, 8), ("1", 1024, 3)),
            other=("8", 300, 24),
        )
    # Far wider than it comes to on a quiet machine: see benchmarks/calibration_loop.py.
    for quantity in ("tpot_s", "e2e_s", "output_tok_s"):
        assert 1 / 1.6 < found.ratio(quantity) < 1.6, quantity
        before, after = found.before[quantity], found.after[quantity]
        assert after["high"] / after["low"] < 0.8 * before["high"] / before["low"]
    assert "6 loads fitted" in found.said
