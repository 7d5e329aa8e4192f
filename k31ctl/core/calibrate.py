"""The speed model's parameters for one site's GPUs and engine, from its own benchmarks."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from math import exp, sqrt

from k31ctl.core.calibrated_spread import Name
from k31ctl.core.calibration import SCHEMA, Calibration, FittedRun, Scope
from k31ctl.core.deployed import Deployed, layout_words
from k31ctl.core.figure import Basis
from k31ctl.core.identified import Group, Missing, grid, groups, missing
from k31ctl.core.learning import lessons, once, prior_spread, said, touched
from k31ctl.core.observed import E2E, TTFT, Observed
from k31ctl.core.robust_fit import Fit, robust_fit
from k31ctl.core.speed_parameters import Parameter, SpeedParameters, Table, tables
from k31ctl.errors import InputError, RefusedError
from k31ctl.values import frozen

RULE = "calibrate-identify"
# Below this share of what it was before, a spread is known from the runs.
INFORMED = 0.7


@frozen
class SiteRun:
    """A run of a deployment: its stages, and what the record says of where it came from.

    ``max_model_len`` is the longest context by the server's word, None where it does not tell.
    """

    run: str
    command: str
    server: str
    max_model_len: int | None
    deployed: Deployed
    stages: tuple[Observed, ...]

    @property
    def served(self) -> Deployed:
        """The deployment with the longest context that it really takes."""
        known = (self.deployed.asked.max_model_len, self.max_model_len)
        limit = min((most for most in known if most), default=None)
        if limit is not None:  # what was answered was not too long
            limit = max(limit, *(s.prompt_tokens + s.output_tokens for s in self.stages))
        return replace(self.deployed, asked=replace(self.deployed.asked, max_model_len=limit))


@frozen
class FittedFigure:
    """One measured figure beside the model before and after, in seconds."""

    load: str
    figure: str
    measured: float
    before: float
    after: float
    is_far: bool


@frozen
class Calibrated:
    """``parameters`` hold all of ours with the fitted ones in place; ``changed`` names those."""

    parameters: SpeedParameters
    calibration: Calibration
    changed: tuple[Name, ...]
    groups: tuple[Group, ...]
    figures: tuple[FittedFigure, ...]


def calibrate(
    runs: Sequence[SiteRun], parameters: SpeedParameters, *, version: str, today: date
) -> Calibrated:
    """Fit the parameters to the runs.

    Raises InputError where no stage can be fitted, RefusedError where the runs are of different
    GPUs or engines, or cannot tell the parameters that they depend on.
    """
    scope = _scope(runs)
    learnt = [lessons(run.deployed, run.stages) for run in runs]
    every = once([lesson for found, _ in learnt for lesson in found])
    if not every:
        first = learnt[0][1][0]
        raise InputError(
            f"no stage can be fitted: {first}",
            where=", ".join(run.run for run in runs),
            remedy="measure closed loops of several sizes: k31ctl bench URL --concurrency 1,8,64",
        )
    possible = grid(_distinct(runs), every)
    names = touched(parameters, [*every, *possible])
    fit = robust_fit(parameters, names, every)
    found = groups(fit, parameters, possible)
    lacking = missing(fit, parameters, possible, found)
    if lacking:
        raise _refused(lacking, runs)
    figures = _figures(fit, parameters)
    calibration = Calibration(
        schema=SCHEMA,
        version=version,
        date=today,
        of=scope,
        runs=tuple(
            FittedRun(
                run=run.run,
                command=run.command,
                server=run.server,
                loads=tuple(dict.fromkeys(lesson.name for lesson in found)),
                left_out=tuple(left_out),
            )
            for run, (found, left_out) in zip(runs, learnt, strict=True)
        ),
        num_loads=len(every),
        mean_error=sum(abs(f.after / f.measured - 1) for f in figures) / len(figures),
        outliers=tuple(f"{f.load}: {f.figure}" for f in figures if f.is_far),
        parameters=fit.names,
        covariance=tuple(tuple(row[: i + 1]) for i, row in enumerate(fit.covariance)),
    )
    return Calibrated(
        parameters=_settled(fit, parameters, calibration),
        calibration=calibration,
        changed=fit.names,
        groups=tuple(found),
        figures=figures,
    )


def _scope(runs: Sequence[SiteRun]) -> Scope:
    parts = [run.deployed.parts for run in runs]
    for name, found in (
        ("GPUs", {p.node.gpu.name for p in parts}),
        ("engines", {p.engine.engine for p in parts}),
    ):
        if len(found) > 1:
            raise RefusedError(
                f"the runs are of different {name}: {', '.join(sorted(found))}",
                where=", ".join(run.run for run in runs),
                remedy="calibrate each by itself: parameters hold for one GPU and one engine",
                rule="calibrate-one-site",
            )
    first = parts[0]
    return Scope(
        gpu=first.node.gpu.name,
        architecture=first.node.gpu.architecture,
        hardware=tuple(sorted({p.node.id for p in parts})),
        engine=first.engine.engine,
        engine_versions=tuple(sorted({p.engine.version for p in parts})),
        models=tuple(sorted({p.model.id for p in parts})),
        layouts=tuple(
            sorted({layout_words(r.deployed.parts.node, r.deployed.built.layout) for r in runs})
        ),
    )


def _distinct(runs: Sequence[SiteRun]) -> list[Deployed]:
    """One deployment of each kind: the loads that could be measured are the same on the others."""
    return list({run.deployed.named: run.served for run in runs}.values())


def _refused(lacking: Sequence[Missing], runs: Sequence[SiteRun]) -> RefusedError:
    worst = lacking[0]
    loads = dict.fromkeys(
        (each.load.concurrency, each.load.prompt_tokens, each.load.output_tokens)
        for each in lacking
    )
    asked = " and ".join(
        f"--concurrency {users} --prompt-tokens {prompt} --output-tokens {output}"
        for users, prompt, output in loads
    )
    group = worst.group
    named = " and ".join(f"{table}.{key}" for table, key in group.names)
    return RefusedError(
        f"the runs do not tell {named}: known within {group.before:.0%} before, "
        f"{group.after:.0%} after",
        where=", ".join(dict.fromkeys(run.run for run in runs)),
        remedy=f"measure also {asked}, and give all runs together",
        rule=RULE,
        source="docs/calibrate.md",
    )


def _figures(fit: Fit, before: SpeedParameters) -> tuple[FittedFigure, ...]:
    found = []
    for row in fit.rows:
        measured = row.lesson.measured[row.figure]
        found.append(
            FittedFigure(
                load=row.lesson.name,
                figure=row.figure,
                measured=exp(measured),
                before=exp(said(row.lesson, before)[row.figure]),
                after=exp(measured - row.residual),
                is_far=fit.far(row),
            )
        )
    return tuple(found)


def _settled(fit: Fit, before: SpeedParameters, calibration: Calibration) -> SpeedParameters:
    """The parameters with what was fitted written into each entry."""
    changed: dict[str, Table] = {}
    source = f"k31ctl calibrate, {calibration.num_loads} loads, {calibration.date}"
    for i, name in enumerate(fit.names):
        table = changed.setdefault(name[0], dict(tables(fit.parameters)[name[0]]))
        entry = tables(before)[name[0]][name[1]]
        known, spread = prior_spread(before, name), sqrt(fit.covariance[i][i])
        table[name[1]] = replace(
            table[name[1]],
            spread=spread,
            prior=entry.value,
            prior_spread=known,
            source=source,
            basis=Basis.MEASURED if spread < INFORMED * known else Basis.ASSUMED,
        )
    steps = {E2E, *(row.figure for row in fit.rows)} - {TTFT}
    changed["model_spread"] = {
        **before.model_spread,
        "default": _missed(before, max(fit.spreads[name] for name in steps), "default", source),
        TTFT: _missed(before, fit.spreads[TTFT], TTFT, source),
    }
    scope = calibration.of
    return replace(
        fit.parameters,
        id=f"calibration of {scope.engine} on {scope.gpu}",
        name=f"{scope.engine} on {scope.gpu}, fitted to {calibration.num_loads} loads",
        checked=str(calibration.date),
        calibration=calibration,
        **changed,
    )


def _missed(before: SpeedParameters, spread: float, key: str, source: str) -> Parameter:
    table = before.model_spread
    entry = table.get(key, table["default"])
    return replace(entry, value=spread, prior=entry.value, source=source, basis=Basis.MEASURED)
