"""The child of a smoke test: a task on the first line of its input, then the names of steps.

Answers go to a pipe of their own, so that nothing that a library prints is taken for one.
"""

import ctypes
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

from k31ctl.core.ladder import RUNGS, Rung, Status, Step, first_broken
from k31ctl.errors import K31Error
from k31ctl.smoke.task import read_task, step_line

if TYPE_CHECKING:
    from k31ctl.smoke.session import Found, Session

_DIE_WITH_PARENT: Final = 1


def main() -> None:
    """Run steps until there are no more."""
    _die_with_parent(int(sys.argv[2]))
    from k31ctl.smoke.session import Session  # noqa: PLC0415  torch takes seconds to import

    session = Session(read_task(sys.stdin.readline()))
    rungs = {rung.id: rung for rung in RUNGS}
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers:
        for line in sys.stdin:
            answers.write(step_line(run_step(session, rungs[line.strip()])))
            answers.flush()


def run_step(session: "Session", rung: Rung) -> Step:
    """One step; whatever it raises is its verdict."""
    from k31ctl.smoke.session import Found, Skipped  # noqa: PLC0415
    from k31ctl.smoke.steps import STEPS  # noqa: PLC0415

    begun, found, status = time.monotonic(), Found(detail=""), Status.PASS
    try:
        found = STEPS[rung.id](session)
    except Skipped as skipped:
        status, found = Status.SKIP, Found(detail=str(skipped))
    except K31Error as error:
        what = f"{error.what} ({error.where})"
        status, found = Status.FAIL, Found(detail=what, notes=(f"do: {error.remedy}",))
    except Exception as error:  # noqa: BLE001  whatever goes wrong is what was asked for
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"at {Path(last.filename).name}, line {last.lineno}, in {last.name}"
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        status, found = Status.FAIL, Found(detail=what, notes=(place,))
    if status is Status.PASS and (found.faults or first_broken(found.measures)):
        status = Status.FAIL
    return Step(
        id=rung.id,
        name=rung.name,
        status=status,
        seconds=time.monotonic() - begun,
        detail=_detail(found),
        measures=found.measures,
        notes=found.notes,
    )


def _detail(found: "Found") -> str:
    """What is wrong, where something is; else what was looked at."""
    if found.faults:
        return "; ".join(found.faults)
    broken = first_broken(found.measures)
    if broken is None:
        return found.detail
    value = "no finite number" if broken.value is None else f"{broken.value:.3g}"
    return f"{broken.name}: {value}, outside its bound"


def _die_with_parent(parent: int) -> None:
    """End with the watcher, however it ends; only Linux can."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if os.getppid() != parent:
            sys.exit(1)


if __name__ == "__main__":
    main()
