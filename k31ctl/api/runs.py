"""Runs compared, held against plans, and the speed model fitted to them."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from k31ctl.api.given import Folders, path_of, paths_of, store_of
from k31ctl.api.hardware import node_named
from k31ctl.errors import UsageError
from k31ctl.values import frozen

if TYPE_CHECKING:
    from k31ctl.bench.compare import Comparison
    from k31ctl.bench.result import StageResult
    from k31ctl.catalog.measurements import Skipped
    from k31ctl.catalog.planned import Planned
    from k31ctl.core.against import Against
    from k31ctl.core.calibrate import Calibrated
    from k31ctl.core.speed_parameters import SpeedParameters
    from k31ctl.core.validation import Validation


@frozen
class Held:
    """A run held against a plan, where that plan lies, and what to beware of."""

    against: "Against"
    where: str
    notes: tuple[str, ...]


@frozen
class SiteFit:
    """The speed model fitted to a site's own runs, and what to beware of."""

    calibrated: "Calibrated"
    notes: tuple[str, ...]


@frozen
class Validated:
    """The speed model held against a table of measurements; of that, ``skipped`` was left out."""

    validation: "Validation"
    skipped: "tuple[Skipped, ...]"
    speed: "SpeedParameters"


def compare(run: str | Path, *, against: str | Path | None = None) -> Held:
    """Return a saved run held against a plan: predicted, measured, ratio, what is likely off.

    ``run`` is a record's folder or what ``bench --json`` said, ``against`` a file of
    ``plan --json``, else the plan that the record keeps. Raises InputError where one cannot be
    read.

    >>> print(compare("run", against="plan.json").against.suspicion.text)
    """
    from k31ctl.bench.observed import read_run
    from k31ctl.core.against import against as held_against

    measured = read_run(Path(run))
    plan = (
        plan_of(measured.plan, where=measured.where) if against is None else plan_at(Path(against))
    )
    found = held_against(plan.deployed, measured.stages, random=Random(0), seed=0)
    return Held(against=found, where=plan.where, notes=plan.notes)


def diff(
    before: str | Path,
    after: str | Path,
    *,
    least: float | None = None,
    between_runs: float | None = None,
    metric: Sequence[str] | None = None,
) -> "Comparison":
    """Return what changed from one saved run to another, and whether it is beyond noise.

    ``least`` and ``between_runs`` are shares: what is too small to matter, 0.02 if not given, and
    the standard deviation between runs of the same, 0.005. Raises InputError for a file that is no
    run, UsageError for an unknown metric.

    >>> for stage, figure in diff("monday", "tuesday").worse:
    ...     print(stage, figure.metric)
    """
    from k31ctl.bench.compare import BETWEEN_RUNS, LEAST, judged_metrics
    from k31ctl.bench.compare import compare as compared
    from k31ctl.bench.past import read_run

    return compared(
        read_run(Path(before)),
        read_run(Path(after)),
        judged=judged_metrics(metric),
        least=LEAST if least is None else least,
        between_runs=BETWEEN_RUNS if between_runs is None else between_runs,
    )


def calibrate(
    runs: str | Path | Sequence[str | Path], *, plan: str | Path | None = None
) -> SiteFit:
    """Return the speed model fitted to this site's own runs.

    ``plan`` is the deployment that was measured, for records that keep no plan. Raises RefusedError
    where the runs cannot tell its parameters, and says which load would; InputError for a file that
    is no run or no plan.

    >>> write_calibration(calibrate(["run"]), "site.yaml")
    """
    from datetime import UTC, datetime

    from k31ctl import __version__
    from k31ctl.bench.observed import read_run
    from k31ctl.catalog.speed import load_speed
    from k31ctl.core.calibrate import SiteRun
    from k31ctl.core.calibrate import calibrate as fitted

    if not (paths := paths_of("runs", runs)):
        raise UsageError("there is no run to fit to", where="runs", remedy="name at least one run")
    given = None if plan is None else plan_at(Path(plan), calibrated=False)
    measured = [read_run(path) for path in paths]
    planned = [
        given or plan_of(run.plan, where=run.where, calibrated=False, option="--plan")
        for run in measured
    ]
    found = fitted(
        [
            SiteRun(
                run=run.where,
                command=run.command,
                server=run.version,
                max_model_len=run.max_model_len,
                deployed=each.deployed,
                stages=run.stages,
            )
            for run, each in zip(measured, planned, strict=True)
        ],
        load_speed(store_of(())),
        version=__version__,
        today=datetime.now(UTC).date(),
    )
    notes = tuple(dict.fromkeys(note for each in planned for note in each.notes))
    return SiteFit(calibrated=found, notes=notes)


def validate(
    table: str = "kimi-k3",
    *,
    cross: bool = False,
    fit: bool = False,
    calibration: str | Path | None = None,
    profiles: Folders = (),
) -> Validated:
    """Return what the speed model says of published measurements, figure by figure.

    With ``cross`` each source is predicted by a fit that has not seen it, which takes a minute;
    with ``fit`` the parameters are fitted to all tables first. That targets are missed is in the
    answer. Raises ProfileError for an unknown table.

    >>> print(validate().validation.missed)
    """
    from k31ctl.catalog.measurements import load_trials, other_tables
    from k31ctl.catalog.speed import load_speed
    from k31ctl.core.validation import validation

    store = store_of(profiles)
    speed = load_speed(store, path_of(calibration))
    trials, skipped = load_trials(store, table, speed)
    others = [t for name in other_tables(store, table) for t in load_trials(store, name, speed)[0]]
    if fit:
        from k31ctl.core.fit import fitted

        speed = fitted(speed, [t for t in (*trials, *others) if not t.measurement.left_out])
    return Validated(
        validation=validation(trials, others, speed, cross=cross),
        skipped=tuple(skipped),
        speed=speed,
    )


def plan_at(path: Path, *, calibrated: bool = True) -> "Planned":
    """The deployment of a plan's file, with its calibration or without."""
    from k31ctl.catalog.plan_document import read_plan
    from k31ctl.catalog.planned import planned

    return planned(
        read_plan(path), where=str(path), node_named=node_named, is_calibrated=calibrated
    )


def plan_of(
    document: object, *, where: str, calibrated: bool = True, option: str = "--against"
) -> "Planned":
    """The deployment of the plan that a record keeps.

    Raises InputError where it keeps none, which ``option`` makes good.
    """
    from k31ctl.catalog.planned import kept_plan, planned

    return planned(
        kept_plan(document, where=where, option=option),
        where=f"the plan in {where}",
        node_named=node_named,
        is_calibrated=calibrated,
    )


def hold_stages(plan: "Planned", stages: "Sequence[StageResult]", seed: int) -> "Against":
    """Hold stages that were just measured against a plan."""
    from k31ctl.bench.observed import observed_stage
    from k31ctl.core.against import against

    seen = [observed_stage(stage, run="this run") for stage in stages]
    return against(plan.deployed, seen, random=Random(seed), seed=seed)
