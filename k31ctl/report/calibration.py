"""A calibration as people read it, as JSON, and as the file that ``plan --calibration`` takes."""

import sys
from collections.abc import Sequence
from math import log
from pathlib import Path
from typing import Any

from k31ctl.core.calibrate import Calibrated, FittedFigure
from k31ctl.core.calibrated_spread import Name
from k31ctl.core.identified import Group
from k31ctl.core.observed import TTFT
from k31ctl.core.speed_parameters import Parameter, tables
from k31ctl.report.envelope import envelope, plain
from k31ctl.report.files import STANDARD_OUTPUT, write_whole
from k31ctl.report.lines import folded, printable
from k31ctl.report.speed_text import number
from k31ctl.report.targets import require_apart

_FIGURES = 4
_COVARIANCE_FIGURES = 8
_MS = 1e3
_MOST_SHOWN = 24
_NOTE = (
    "# Written by k31ctl calibrate for k31ctl plan --calibration. value: fitted. spread: standard\n"
    "# deviation of its logarithm. prior, prior_spread: what was believed before. covariance: of\n"
    "# the logarithms of calibration.parameters, its lower triangle.\n"
)


def show_calibration(
    found: Calibrated, notes: Sequence[str], *, inputs: object, out: Path, as_json: bool
) -> None:
    """Write the file, then say what was learnt; a file sent to ``-`` takes the answer's place."""
    require_apart(out, as_json=as_json)
    write_whole(out, calibration_yaml(found))
    if as_json:
        sys.stdout.write(
            envelope(
                "calibrate",
                inputs=inputs,
                result={"file": str(out)} | calibration_result(found),
                warnings=notes,
            )
        )
    elif out != STANDARD_OUTPUT:
        sys.stdout.write(_text(found, notes, out))


def _entry(found: Calibrated, name: Name) -> Parameter:
    return tables(found.parameters)[name[0]][name[1]]


def calibration_yaml(found: Calibrated) -> str:
    """The file: the fitted entries, and of what, when and how surely they were fitted."""
    import yaml  # noqa: PLC0415  slow to import, and only a file needs it

    parameters = found.parameters
    entries: dict[str, dict[str, Any]] = {}
    for table, key in found.changed:
        entries.setdefault(table, {})[key] = _written(_entry(found, (table, key)))
    entries["model_spread"] = {
        key: _written(parameters.model_spread[key]) for key in ("default", TTFT)
    }
    calibration = plain(found.calibration)
    calibration["covariance"] = [
        [_rounded(value, _COVARIANCE_FIGURES) for value in row]
        for row in found.calibration.covariance
    ]
    calibration["mean_error"] = _rounded(found.calibration.mean_error, _FIGURES)
    head = {"id": parameters.id, "name": parameters.name, "checked": parameters.checked}
    text = yaml.safe_dump(head, sort_keys=False, width=100)
    for part in ({"calibration": calibration}, entries):
        text += yaml.safe_dump(part, sort_keys=False, width=100, default_flow_style=None)
    return _NOTE + text


def _written(entry: Parameter) -> dict[str, Any]:
    return {
        "value": _rounded(entry.value, _FIGURES),
        "spread": _rounded(entry.spread, _FIGURES),
        "prior": _rounded(entry.prior, _FIGURES),
        "prior_spread": _rounded(entry.prior_spread, _FIGURES),
        "why": entry.why,
        "source": entry.source,
        "basis": entry.basis.value,
    }


def _rounded(value: float, figures: int) -> float:
    return float(f"{value:.{figures}g}")


def calibration_result(found: Calibrated) -> dict[str, Any]:
    """The names and values that JSON sees, but for the file that was written."""
    calibration = found.calibration
    return {
        "calibration": calibration,
        "parameters": [
            {
                "table": table,
                "key": key,
                "value": entry.value,
                "spread": entry.spread,
                "prior": entry.prior,
                "prior_spread": entry.prior_spread,
                "basis": entry.basis,
            }
            for table, key in found.changed
            for entry in (_entry(found, (table, key)),)
        ],
        "groups": [
            {
                "parameters": [".".join(name) for name in group.names],
                "matters": group.matters,
                "before": group.before,
                "after": group.after,
                "identified": group.is_identified,
            }
            for group in found.groups
        ],
        "figures": found.figures,
        "model_spread": {
            key: found.parameters.model_spread[key].value for key in ("default", TTFT)
        },
    }


def _text(found: Calibrated, notes: Sequence[str], out: Path) -> str:
    calibration = found.calibration
    of = calibration.of
    missed = found.parameters.model_spread["default"].value
    lines = folded(
        f"{of.engine} on {of.gpu}: {calibration.num_loads} loads fitted, {len(found.figures)} "
        f"figures missed by {calibration.mean_error:.1%} on average.",
        indent="",
    )
    lines += ["", *_groups(found.groups), "", *_parameters(found), "", *_figures(found.figures)]
    lines += [
        "",
        *folded(
            f"what the fit still misses: {missed:.1%} of times and rates, "
            f"{found.parameters.model_spread[TTFT].value:.1%} of TTFT; both count in the bands of "
            "a plan",
            indent="  ",
        ),
    ]
    for run in calibration.runs:
        lines += [line for why in run.left_out for line in folded(f"left out: {why}", indent="  ")]
    for note in notes:
        lines += folded(f"beware: {note}", indent="  ")
    lines.append(f"  written: {out}; use it with k31ctl plan ... --calibration {out}")
    return "".join(printable(line).rstrip() + "\n" for line in lines)


def _groups(groups: Sequence[Group]) -> list[str]:
    lines = [f"  {'what the loads tell together':<52}{'before':>9}{'after':>9}"]
    for group in groups:
        first, *rest = [".".join(name) for name in group.names]
        lines.append(f"  {first:<52}{_plus_minus(group.before):>9}{_plus_minus(group.after):>9}")
        lines += [f"    with {name}" for name in rest]
    return lines


def _plus_minus(spread: float) -> str:
    return f"+-{spread:.0%}"


def _parameters(found: Calibrated) -> list[str]:
    lines = [f"  {'parameter':<34}{'before':>10}{'':>7}{'fitted':>10}{'':>7}  basis"]
    for name in found.changed:
        entry = _entry(found, name)
        lines.append(
            f"  {'.'.join(name):<34}{entry.prior:>10.3g}{_plus_minus(entry.prior_spread):>7}"
            f"{entry.value:>10.3g}{_plus_minus(entry.spread):>7}  {entry.basis}"
        )
    return lines


def _figures(figures: Sequence[FittedFigure]) -> list[str]:
    """Every figure, or the worst of many."""
    shown, title = list(figures), "figure"
    if len(figures) > _MOST_SHOWN:
        shown = sorted(figures, key=lambda each: -abs(log(each.measured / each.after)))
        shown, title = shown[: _MOST_SHOWN // 2], f"figure, the worst of {len(figures)}"
    lines = [f"  {title:<46}{'measured':>10}{'before':>8}{'fitted':>8}"]
    lines.append(f"  {'':<46}{'ms':>10}{'ratio':>8}{'ratio':>8}")
    for each in shown:
        mark = "  far off" if each.is_far else ""
        name = f"{each.load}: {each.figure.removesuffix('_s')}"
        lines.append(
            f"  {name[:46]:<46}{number(each.measured * _MS):>10}"
            f"{each.measured / each.before:>8.2f}{each.measured / each.after:>8.2f}{mark}"
        )
    return lines
