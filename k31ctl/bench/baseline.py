"""A run as the limit for another: what may not be worse, and when that can be told at all."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from k31ctl.bench.compare import GATED, LEAST_FAILED, OF_THE_LOAD, Compared, Comparison, Verdict
from k31ctl.bench.past import FAILED, PastRun, read_run
from k31ctl.core.noise import FEWEST
from k31ctl.errors import InputError, UsageError
from k31ctl.values import frozen


@frozen
class Baseline:
    """A run that the one to come is held against, and by how much that may be worse."""

    run: PastRun
    max_regression: float | None


@frozen
class Regression:
    """What a gate refuses: a judged metric that is worse beyond noise, and by more than allowed."""

    stage: str
    compared: Compared
    allowed: float


def read_baseline(
    path: Path | None,
    max_regression: float | None,
    *,
    inputs: Mapping[str, Any],
    names: Sequence[str],
) -> Baseline | None:
    """Read what a run that is about to begin is held against; None where nothing is asked for.

    Raises InputError where the two could not be held against each other, UsageError where a limit
    has no baseline.
    """
    if path is None:
        if max_regression is not None:
            raise UsageError(
                "a regression is against a baseline",
                where="--max-regression",
                remedy="name a record with --baseline",
            )
        return None
    run = read_run(path)
    if max_regression is not None:
        require_comparable(run, inputs, names=names)
    return Baseline(run=run, max_regression=max_regression)


def require_comparable(before: PastRun, inputs: Mapping[str, Any], *, names: Sequence[str]) -> None:
    """Raise InputError where a run that is about to begin could not be held against one before."""
    other = [
        f"{name} {before.inputs[name]} there, {inputs[name]} here"
        for name in OF_THE_LOAD
        if name in before.inputs and name in inputs and before.inputs[name] != inputs[name]
    ]
    known = dict.fromkeys(stage.name for stage in before.stages if stage.is_whole)
    if not other and not set(names) & known.keys():
        other = [f"{', '.join(known) or 'no stage'} there, {', '.join(dict.fromkeys(names))} here"]
    if other:
        raise InputError(
            f"the baseline is of another load: {'; '.join(other)}",
            where=before.where,
            remedy="measure with the options of the baseline, or make a new one",
        )
    there = [stage.name for stage in before.stages if stage.is_whole]
    for name in known.keys() & set(names):
        if min(there.count(name), names.count(name)) < FEWEST:
            raise InputError(
                f"{name} is in the baseline {there.count(name)} times and will be measured "
                f"{names.count(name)} times, which does not tell its noise",
                where=before.where,
                remedy="measure both with --repeat 5",
            )


def regressions(
    found: Comparison, *, most: float, gated: Sequence[str] = GATED
) -> tuple[Regression, ...]:
    """Return which of the figures of the gate are worse by more than ``most`` and beyond noise.

    Raises InputError where the runs cannot be held against each other: other loads, or no repeats.
    """
    other = [setting.name for setting in found.settings if setting.is_load]
    if other:
        raise InputError(
            f"the runs measured different loads: {', '.join(other)} is not the same",
            where=f"{found.before}, {found.after}",
            remedy="measure the baseline and the change with the same options",
        )
    for stage in found.stages:
        if any(metric.verdict is Verdict.UNKNOWN for metric in stage.metrics):
            raise InputError(
                f"{stage.name} was measured {stage.num_before} and {stage.num_after} times, which "
                "does not tell its noise",
                where=f"{found.before}, {found.after}",
                remedy="measure both with --repeat 5",
            )
    return tuple(
        Regression(stage=name, compared=metric, allowed=_allowed(metric, most))
        for name, metric in found.worse
        if metric.metric in gated and abs(metric.change.change) > _allowed(metric, most)
    )


def _allowed(metric: Compared, most: float) -> float:
    return LEAST_FAILED if metric.metric == FAILED else most
