"""Figures of measured loads against what the speed model says, as rows of a least-squares problem.

A load that was measured several times counts once, with the mean of its logarithms: what the model
misses of a load it misses each time.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, log

from k31ctl.core.calibrated_spread import Name, moved
from k31ctl.core.deployed import Deployed
from k31ctl.core.observed import E2E, ITL, TPOT, TTFT, Observed
from k31ctl.core.prediction import service_of
from k31ctl.core.speed_parameters import SpeedParameters, tables
from k31ctl.core.step import StepModel
from k31ctl.core.workload import Workload
from k31ctl.values import frozen

STEP = 1e-3
_ALIKE = 0.02


@frozen
class Lesson:
    """One load of one deployment with the logarithms of its measured figures, in seconds.

    Without figures it is a load that could be measured.
    """

    deployed: Deployed
    load: Workload
    measured: dict[str, float]
    name: str
    num_rounds: float = inf


def figures(deployed: Deployed) -> tuple[str, ...]:
    """What is fitted: a decode step, a prefill with its queue, and both together.

    Where prompts are spread over the steps, the median gap may well hold a chunk: there the time
    per output token stands for the step, with the chunks that stall it.
    """
    return (TPOT if deployed.case.engine.staggered else ITL, TTFT, E2E)


def lessons(deployed: Deployed, stages: Sequence[Observed]) -> tuple[list[Lesson], list[str]]:
    """What the stages of a run teach, one by one, and why the others teach nothing."""
    found, left_out = [], []
    for stage in stages:
        why_not = stage.why_not or _why_not(deployed, stage)
        if why_not:
            left_out.append(f"{stage.name}: {why_not}")
        else:
            found.append(_lesson(deployed, stage))
    return found, left_out


def _why_not(deployed: Deployed, stage: Observed) -> str:
    if stage.concurrency is None:
        return "only closed loops are fitted"
    if deployed.most_running(stage.load) < 1:
        return "the deployment holds no request of this length"
    if not set(figures(deployed)) & stage.measured.keys():
        return "nothing was measured that is fitted"
    return ""


def _lesson(deployed: Deployed, stage: Observed) -> Lesson:
    # An answer of one token ends with its first: the two are one figure.
    names = [n for n in figures(deployed) if n != E2E or stage.output_tokens > 1]
    return Lesson(
        deployed=deployed,
        load=stage.load,
        measured={name: log(stage.measured[name]) for name in names if name in stage.measured},
        name=f"{stage.name}, {stage.prompt_tokens:,} in, {stage.output_tokens:,} out",
        num_rounds=stage.num_rounds,
    )


def once(every: Sequence[Lesson]) -> list[Lesson]:
    """Each load of each deployment once, with the means of its figures."""
    kept: list[list[Lesson]] = []
    for lesson in every:
        same = next((group for group in kept if _alike(group[0], lesson)), None)
        if same is None:
            kept.append([lesson])
        else:
            same.append(lesson)
    return [replace(group[0], measured=_means(group)) for group in kept]


def _means(group: Sequence[Lesson]) -> dict[str, float]:
    found = {}
    for name in dict.fromkeys(name for lesson in group for name in lesson.measured):
        values = [lesson.measured[name] for lesson in group if name in lesson.measured]
        found[name] = sum(values) / len(values)
    return found


def _alike(one: Lesson, two: Lesson) -> bool:
    a, b = one.load, two.load
    return (
        one.deployed.named == two.deployed.named
        and a.concurrency == b.concurrency
        and all(
            abs(x - y) <= _ALIKE * max(x, y)
            for x, y in (
                (a.prompt_tokens, b.prompt_tokens),
                (a.output_tokens, b.output_tokens),
                (1 + a.cached_fraction, 1 + b.cached_fraction),
            )
        )
    )


def said(lesson: Lesson, parameters: SpeedParameters) -> dict[str, float]:
    """The logarithm of each figure under these parameters."""
    return _said(lesson, lesson.deployed.case.step(parameters))


def _said(lesson: Lesson, step: StepModel) -> dict[str, float]:
    case = lesson.deployed.case
    service = service_of(
        case,
        step,
        lesson.load,
        most_running=lesson.deployed.most_running(lesson.load),
        num_rounds=lesson.num_rounds,
    )
    every = {
        ITL: service.decode_s / case.tokens_per_step,
        TPOT: service.tpot_s,
        TTFT: service.ttft_s,
        E2E: service.e2e_s,
    }
    return {name: log(every[name]) for name in figures(lesson.deployed)}


def slopes(
    lesson: Lesson, parameters: SpeedParameters, names: Sequence[Name]
) -> dict[str, list[float]]:
    """How the logarithm of each figure moves with the logarithm of each parameter."""
    case = lesson.deployed.case
    step = case.step(parameters)
    base = _said(lesson, step)
    found: dict[str, list[float]] = {figure: [] for figure in base}
    for name in names:
        other = case.step(moved(parameters, name, STEP))
        # Most parameters are of other GPUs and engines.
        new = base if other.rates == step.rates else _said(lesson, other)
        for figure, value in new.items():
            found[figure].append((value - base[figure]) / STEP)
    return found


def touched(parameters: SpeedParameters, every: Sequence[Lesson]) -> list[Name]:
    """The parameters that move any figure of any of these loads, and that may move."""
    free = [
        (table, key)
        for table, entries in tables(parameters).items()
        if table != "model_spread"
        for key, entry in entries.items()
        if entry.prior_spread > 0 or entry.spread > 0
    ]
    moving: set[Name] = set()
    for lesson in every:
        left = [name for name in free if name not in moving]
        found = slopes(lesson, parameters, left)
        moving |= {
            name for i, name in enumerate(left) if any(abs(row[i]) > 0 for row in found.values())
        }
    return [name for name in free if name in moving]


def prior_spread(parameters: SpeedParameters, name: Name) -> float:
    """How far a site of its own may be from the parameter's value.

    What public runs have taught of it is about other sites: the wider of both spreads counts.
    """
    entry = tables(parameters)[name[0]][name[1]]
    return max(entry.spread, entry.prior_spread)


def at(
    parameters: SpeedParameters, names: Sequence[Name], moves: Sequence[float]
) -> SpeedParameters:
    """The parameters with the logarithms of some of them raised."""
    for name, by in zip(names, moves, strict=True):
        parameters = moved(parameters, name, by)
    return parameters
