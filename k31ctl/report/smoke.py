"""A smoke test as it goes, its end in a sentence, one JSON document, and JUnit's XML."""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from k31ctl.core.ladder import Measure, Status, Step, is_green
from k31ctl.errors import RefusedError
from k31ctl.report.envelope import envelope
from k31ctl.report.junit import Case, junit_text
from k31ctl.report.lines import folded, printable
from k31ctl.report.targets import Targets
from k31ctl.units import counted

_COLOURS: Final = {Status.PASS: "green", Status.FAIL: "red", Status.SKIP: "skipped"}
_TOP: Final = 6  # measures that a green step shows; the JSON has all


def show_smoke(
    steps: Iterable[Step],
    *,
    title: str,
    inputs: Mapping[str, Any],
    as_json: bool,
    targets: Targets,
) -> tuple[Step, ...]:
    """Show each step as it ends, then what it comes to; returns them."""
    is_text = targets.is_free and not as_json
    if is_text:
        _say([f"Smoke test of {title}, for numerics and not for speed.", ""])
    seen: list[Step] = []
    for step in steps:
        seen.append(step)
        if is_text:
            _say(_lines(step))
    done = tuple(seen)
    targets.write({"junit": lambda: junit_text("k31ctl smoke", smoke_cases(done, title=title))})
    if as_json:
        sys.stdout.write(envelope("smoke", inputs=inputs, result=smoke_result(done)))
    elif is_text:
        _say(["", *folded(_end(done), indent="")])
    return done


def require_green(steps: tuple[Step, ...], *, title: str) -> None:
    """Raise RefusedError where a step failed, or where none could run."""
    failed = [step for step in steps if step.status is Status.FAIL]
    if failed:
        first = failed[0]
        raise RefusedError(
            f"{first.id} failed: {first.detail}",
            where=title,
            remedy="mend this first; --keep-going runs the steps behind it, --only ID one again",
        )
    if not is_green(steps):
        raise RefusedError(
            "no step could run", where=title, remedy="read why each was skipped, and ask for others"
        )


def smoke_result(steps: tuple[Step, ...]) -> dict[str, Any]:
    """The names and values that JSON has."""
    statuses = [step.status for step in steps]
    return {
        "green": is_green(steps),
        "num_steps": {status.value: statuses.count(status) for status in Status},
        "seconds": sum(step.seconds for step in steps),
        "steps": steps,
    }


def smoke_cases(steps: tuple[Step, ...], *, title: str) -> list[Case]:
    """Return a case for each step."""
    return [
        Case(
            group=f"smoke.{title}",
            name=step.id,
            seconds=step.seconds,
            failure=step.detail if step.status is Status.FAIL else None,
            skipped=step.detail if step.status is Status.SKIP else None,
            detail=_body(step),
            kind="k31ctl.smoke",
        )
        for step in steps
    ]


def _body(step: Step) -> str:
    return "\n".join((step.detail, *map(_measure_text, step.measures), *step.notes))


def _lines(step: Step) -> list[str]:
    lines = [f"{step.id:10}{_COLOURS[step.status]:8}{step.seconds:8.1f} s  {step.name}"]
    lines += folded(step.detail, indent=" " * 10)
    shown = step.measures
    if step.status is Status.PASS and len(shown) > _TOP:
        shown = tuple(sorted(shown, key=_closeness, reverse=True)[:_TOP])
    for each in shown:
        mark = " " * 10 if each.holds else "     red  "
        lines.append(mark + _measure_text(each))
    if len(shown) < len(step.measures):
        rest = len(step.measures) - len(shown)
        lines.append(f"{'':10}and {rest} more, further from their bounds")
    for note in step.notes:
        lines += folded(note, indent=" " * 10)
    return lines


def _closeness(each: Measure) -> float:
    """How near a number is to its bound; 1 is at it."""
    if each.value is None or (each.at_most is None and each.at_least is None):
        return 2.0
    if each.at_most:
        return each.value / each.at_most
    return each.at_least / each.value if each.at_least and each.value else 0.0


def _measure_text(each: Measure) -> str:
    value = "no finite number" if each.value is None else _number(each.value)
    limits = []
    if each.at_least is not None:
        limits.append(f"at least {_number(each.at_least)}")
    if each.at_most is not None:
        limits.append(f"at most {_number(each.at_most)}")
    unit = f" {each.unit}" if each.unit else ""
    end = f"  ({', '.join(limits)})" if limits else ""
    return f"{each.name:40} {value}{unit}{end}"


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e6:  # noqa: PLR2004
        return f"{int(value):,}"
    return f"{value:.3g}"


def _end(steps: tuple[Step, ...]) -> str:
    statuses = [step.status for step in steps]
    parts = [
        f"{counted(statuses.count(status), 'step')} {_COLOURS[status]}"
        for status in Status
        if statuses.count(status)
    ]
    return f"{', '.join(parts)}, in {sum(step.seconds for step in steps):.1f} s"


def _say(lines: Iterable[str]) -> None:
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()
