"""Measure, calibrate, plan, measure another load: how near the plan comes.

``python -m benchmarks.calibration_loop [--embedded kimi-k3 [--passes 3]]``

The server is a loop of known times on this machine, and its processor is made up to suit: what is
shown is that fit and plan are right, not how fast anything is. With ``--embedded`` it is our own
engine on this machine's processor, with a tiny checkpoint of that model, and ``bench hw`` says what
the processor reaches; other work on the machine shows in every figure, less where all loads are
measured several times in turns. Exits 1 where a predicted figure is off by more than a fifth.
"""

import argparse
import multiprocessing
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.calibration_loop import Loop, closed_loop, k31ctl, tiny_plan
from tests.bench.timed_engine import Timing, timed_engine

MOST_OFF = 0.20
TIMING = Timing(step_s=0.03, sequence_s=0.004, prefill_s=0.05, prompt_s=0.02, prompt_token_s=0.0008)
QUANTITIES = ("ttft_s", "itl_s", "tpot_s", "e2e_s", "output_tok_s")
SCORED = ("tpot_s", "e2e_s", "output_tok_s")
SLOTS, CACHED_TOKENS = 16, 65_536


def main() -> int:
    """Run the loop and print the last measurement beside both plans."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--embedded", metavar="MODEL")
    parser.add_argument("--passes", metavar="N", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if asked.embedded is None:
            with timed_engine(TIMING) as url:
                found = timed(folder, url)
        else:
            found = embedded(folder, asked.embedded, asked.passes)
    sys.stdout.write(found.said + "\n")
    off = 0.0
    for quantity in QUANTITIES:
        ratio = found.ratio(quantity)
        off = max(off, abs(ratio - 1)) if quantity in SCORED else off
        before, after = (each[quantity]["predicted"] for each in (found.before, found.after))
        sys.stdout.write(
            f"{quantity:<14} measured {found.measured[quantity]:<10.4g} calibrated {after:<10.4g} "
            f"before {before:<10.4g} ratio {ratio:.2f}\n"
        )
    sys.stdout.write(f"off by at most {off:.0%} of {', '.join(SCORED)}\n")
    if found.between:
        sys.stdout.write(
            f"the same load took {found.between:.0%} longer in one pass than in another\n"
        )
    return int(off > MOST_OFF)


def timed(folder: Path, url: str) -> Loop:
    """Fit seven loads of up to 12 users and 2,048 tokens, then foretell one of 8 users."""
    return closed_loop(
        folder,
        url,
        plan=tiny_plan(folder),
        loads=(("1,4,12", 16, 24), ("1,4", 512, 12), ("1,2", 2048, 6)),
        other=("8", 300, 32),
    )


def embedded(folder: Path, model: str, passes: int) -> Loop:
    """The loop with our own engine on a checkpoint of that architecture."""
    checkpoint, machine = folder / "tiny", folder / "machine.yaml"
    k31ctl("tiny", str(checkpoint), "--model", model)
    disk = ("--disk", str(folder), "--disk-size", "64MiB")
    sys.stdout.write(k31ctl("bench", "hw", "--no-torch", *disk, "--out", str(machine)))
    plan = (str(checkpoint), "--on", str(machine), "--engine", "embedded")
    with _served(checkpoint) as url:
        k31ctl("bench", url, "--requests", "8", "--prompt-tokens", "64")  # the engine warms up
        # Plain completions: what random weights say seldom keeps to the form of a chat.
        return closed_loop(
            folder,
            url,
            plan=plan,
            loads=(("1", 16, 6), ("4,12", 200, 36), ("1,4", 700, 12), ("1", 6144, 2)),
            other=("8", 300, 32),
            output=32,
            passes=passes,
            more=("--completions",),
        )


@contextmanager
def _served(checkpoint: Path) -> Iterator[str]:
    context = multiprocessing.get_context("spawn")
    told = context.Queue()
    server = context.Process(target=_serve, args=(checkpoint, told), daemon=True)
    server.start()
    try:
        yield told.get(timeout=120)
    finally:
        server.terminate()
        server.join()


def _serve(checkpoint: Path, told: Any) -> None:
    import torch  # noqa: PLC0415  only the server's process has the engine

    from k31ctl.engine.service.model_stepper import opened  # noqa: PLC0415
    from k31ctl.engine.service.server import run_service  # noqa: PLC0415
    from k31ctl.engine.tensors import Target  # noqa: PLC0415

    target = Target(dtype=torch.float32, device=torch.device("cpu"))
    model, generator = opened(
        checkpoint, target, name="tiny", num_slots=SLOTS, num_tokens=CACHED_TOKENS
    )
    run_service(model, generator, port=0, when_ready=told.put)


if __name__ == "__main__":
    sys.exit(main())
