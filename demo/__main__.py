"""The whole loop on this machine, for real: ``python -m demo [--keep DIR] [--short]``.

Everything lies in one temporary folder, which is removed at the end like the server. A step that
fails ends the loop with its exit code; 130 after Ctrl-C.
"""

import argparse
import os
import signal
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from demo.loop import FULL, SHORT, STEPS, Amounts, Step
from demo.program import INDENT, Program, StepError, no_children_left, width

INTERRUPTED = 130
BROKEN_PIPE = 141
BUSY = "calibrate-identify"  # the rule by which a calibration is refused
CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129}


def main() -> int:
    """Run every step; returns the exit code of the first that fails, or 0."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new folder that stays")
    parser.add_argument("--short", action="store_true", help="smaller loads and fewer checks")
    asked = parser.parse_args()
    if asked.keep is not None and asked.keep.exists():
        parser.error(f"{asked.keep} exists; name a new folder")
    for number, code in CODES.items():
        signal.signal(number, lambda *_, code=code: sys.exit(code))
    with folder_for(asked.keep) as folder:
        try:
            return run(folder, SHORT if asked.short else FULL, is_kept=asked.keep is not None)
        except KeyboardInterrupt:
            say("\ninterrupted; nothing is left running")
            return INTERRUPTED
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE


def run(folder: Path, amounts: Amounts, *, is_kept: bool, steps: Sequence[Step] = STEPS) -> int:
    """Run the steps in a folder, with the server's end at their end."""
    say(f"k31ctl, the whole loop on this machine in {len(steps)} steps, nothing pretended")
    fate = "stays" if is_kept else "removed at the end; make demo KEEP=DIR keeps it"
    say(f"folder: {folder} ({fate})")
    began = time.monotonic()
    with closing(Program(folder=folder, say=say)) as program, no_children_left():
        for number, step in enumerate(steps, start=1):
            say(f"\n{number:>2}  {step.name}: {step.question}")
            try:
                for line in step.run(program, amounts):
                    say_wrapped(line)
            except StepError as failed:
                say(f"\nstep {number}, {step.name}, failed: {failed}")
                sys.stderr.write(failed.said)
                if BUSY in failed.said:
                    say_wrapped("A busy machine measures badly; when it is quiet, this passes.")
                return failed.code
    say(f"\nThe loop is closed: {len(steps)} steps in {time.monotonic() - began:.0f} s.")
    return 0


@contextmanager
def folder_for(kept: Path | None) -> Iterator[Path]:
    """Yield the folder of this run, and remove it unless it is to stay."""
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.resolve()
        return
    with TemporaryDirectory(prefix="k31ctl-demo-") as name:
        yield Path(name)


def say(line: str) -> None:
    """Write a line at once, so that a pipe shows it as well."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_wrapped(line: str) -> None:
    """Write what was noticed, as wide as the terminal is, up to 120 columns."""
    mark = INDENT[:-2] + "> "
    say(textwrap.fill(line, width(), initial_indent=mark, subsequent_indent=INDENT))


if __name__ == "__main__":
    sys.exit(main())
