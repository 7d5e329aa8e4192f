"""Measure, calibrate, plan, measure another load: how near the plan comes.

``python -m benchmarks.calibration_loop [--url URL --model FOLDER --on PROFILE.yaml]``

Without a URL the server is a loop of known times on this machine, and its processor is made up to
suit: what is shown is that fit and plan are right, not how fast anything is. With a URL it is an
engine that serves the checkpoint in FOLDER on the machine that ``k31ctl bench hw`` described.
Exits 1 where a predicted figure is off by more than a fifth.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.bench.calibration_loop import Loop, closed_loop, tiny_plan
from tests.bench.timed_engine import Timing, timed_engine

MOST_OFF = 0.20
TIMING = Timing(step_s=0.03, sequence_s=0.005, prefill_s=0.05, prompt_token_s=0.0008)
QUANTITIES = ("ttft_s", "itl_s", "tpot_s", "e2e_s", "output_tok_s")
SCORED = ("tpot_s", "e2e_s", "output_tok_s")


def main() -> int:
    """Run the loop and print the last measurement beside both plans."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url")
    parser.add_argument("--model")
    parser.add_argument("--on")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if asked.url is None:
            with timed_engine(TIMING) as url:
                found = loop(folder, url, tiny_plan(folder))
        else:
            plan = (asked.model, "--on", asked.on, "--engine", "embedded")
            found = loop(folder, asked.url, plan)
    sys.stdout.write(found.said + "\n")
    off = 0.0
    for quantity in QUANTITIES:
        ratio = found.ratio(quantity)
        off = max(off, abs(ratio - 1)) if quantity in SCORED else off
        sys.stdout.write(
            f"{quantity:<14} measured {found.measured[quantity]:<10.4g} calibrated "
            f"{found.after[quantity]:<10.4g} before {found.before[quantity]:<10.4g} "
            f"ratio {ratio:.2f}\n"
        )
    sys.stdout.write(f"off by at most {off:.0%} of {', '.join(SCORED)}\n")
    return int(off > MOST_OFF)


def loop(folder: Path, url: str, plan: tuple[str, ...]) -> Loop:
    """Fit eight loads of up to 12 users, then foretell one of 8."""
    return closed_loop(
        folder,
        url,
        plan=plan,
        loads=(("1,4,12", 16, 24), ("1,4,12", 256, 24), ("1,4", 1024, 12)),
        other=(8, 100, 24),
    )


if __name__ == "__main__":
    sys.exit(main())
