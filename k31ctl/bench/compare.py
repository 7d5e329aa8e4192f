"""Two runs against each other: what was different about them, and what it came to beyond noise.

Each repeat of a stage gives one figure of each metric, over all of its own data. Judged are a few
figures that say different things; Holm's adjustment keeps the probability that any of them is
called changed where nothing changed at ``ALPHA``, over all stages together.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from k31ctl.bench.past import FAILED, PastRun, PastStage
from k31ctl.bench.repeats import metric_names
from k31ctl.core.noise import (
    Change,
    adjusted,
    change_between,
    detectable,
    difference_between,
)
from k31ctl.errors import InputError, UsageError
from k31ctl.values import frozen

ALPHA: Final = 0.01
POWER: Final = 0.9
LEAST: Final = 0.02
BETWEEN_RUNS: Final = 0.005
LEAST_FAILED: Final = 0.01
JUDGED: Final = (
    "output_tok_s",
    "goodput",
    "ttft_s.p50",
    "ttft_s.p99",
    "itl_s.p99",
    "tpot_s.mean",
    "e2e_s.mean",
    FAILED,
)
# What a limit holds for unless others are named: tails shift from run to run for many reasons.
GATED: Final = tuple(name for name in JUDGED if not name.endswith(".p99"))
_MORE_IS_BETTER: Final = frozenset({"request_rate", "output_tok_s", "total_tok_s", "goodput"})
# What two runs have to have in common for their stages to be the same load.
OF_THE_LOAD: Final = (
    "prompt_tokens",
    "output_tokens",
    "spread_fraction",
    "shared_fraction",
    "num_turns",
    "think_s",
    "api",
    "burstiness",
    "num_images",
    "image_size",
    "speed",
    "ramp",
)
_SAID_ELSEWHERE: Final = frozenset({"server.url", "server.models"})


class Verdict(StrEnum):
    """What a change is."""

    BETTER = "better"
    WORSE = "worse"
    SMALL = "too small to matter"
    NOISE = "within noise"
    UNKNOWN = "unknown without repeats"


@frozen
class Compared:
    """One metric of one stage; ``p`` is adjusted, ``detectable`` what would have been told.

    ``is_judged`` metrics have a verdict, the others only a change and its interval.
    """

    metric: str
    change: Change
    is_judged: bool
    p: float | None
    detectable: float | None
    verdict: Verdict | None


@frozen
class ComparedStage:
    """One load as both runs measured it, so many times each."""

    name: str
    num_before: int
    num_after: int
    metrics: tuple[Compared, ...]


@frozen
class Setting:
    """Something that was not the same in both runs; ``is_load`` makes their stages two loads."""

    name: str
    before: Any
    after: Any
    is_load: bool


@frozen
class Comparison:
    """Two runs; ``notes`` is what to beware of.

    Changes of up to ``least`` are too small to matter; ``between_runs`` is the standard deviation
    that runs of the same are taken to have beside the noise between their repeats.
    """

    before: str
    after: str
    settings: tuple[Setting, ...]
    stages: tuple[ComparedStage, ...]
    notes: tuple[str, ...]
    least: float
    between_runs: float

    @property
    def worse(self) -> tuple[tuple[str, Compared], ...]:
        """What has become worse beyond noise, with the names of its stages."""
        return self._with(Verdict.WORSE)

    @property
    def better(self) -> tuple[tuple[str, Compared], ...]:
        """What has become better beyond noise."""
        return self._with(Verdict.BETTER)

    def _with(self, verdict: Verdict) -> tuple[tuple[str, Compared], ...]:
        return tuple(
            (stage.name, found)
            for stage in self.stages
            for found in stage.metrics
            if found.verdict is verdict
        )


def judged_metrics(asked: Sequence[str] | None) -> tuple[str, ...]:
    """Return what is judged: what was asked for, else the usual; raises UsageError."""
    if not asked:
        return JUDGED
    known = (*metric_names(), FAILED)
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise UsageError(
            f"{unknown[0][:60]!r} is not a figure that runs are compared by",
            where="--metric",
            remedy=f"names are: {', '.join(known)}",
        )
    return tuple(dict.fromkeys(asked))


def compare(
    before: PastRun,
    after: PastRun,
    *,
    judged: Sequence[str] = JUDGED,
    least: float = LEAST,
    between_runs: float = BETWEEN_RUNS,
) -> Comparison:
    """Return how ``after`` differs from ``before``; raises InputError where no load is in both."""
    pairs = list(_pairs(before, after))
    if not pairs:
        raise InputError(
            "no stage was measured in both runs: "
            f"{_names(before) or 'none'} there, {_names(after) or 'none'} here",
            where=f"{before.where}, {after.where}",
            remedy="measure the same loads, such as --concurrency 1,8,64 in both",
        )
    changes = {
        (name, metric): change
        for name, a, b in pairs
        for metric in (*metric_names(), FAILED)
        if (change := _change(metric, a, b, between_runs)) is not None
    }
    tested = [key for key, change in changes.items() if key[1] in judged and change.p is not None]
    ps = adjusted([changes[key].p or 0.0 for key in tested])
    p_of = dict(zip(tested, ps, strict=True))
    return Comparison(
        before=before.where,
        after=after.where,
        settings=tuple(_settings(before, after)),
        stages=tuple(
            ComparedStage(
                name=name,
                num_before=len(a),
                num_after=len(b),
                metrics=tuple(
                    _compared(key, change, p_of, is_judged=key[1] in judged, least=least)
                    for key, change in changes.items()
                    if key[0] == name
                ),
            )
            for name, a, b in pairs
        ),
        notes=tuple(_notes(before, after)),
        least=least,
        between_runs=between_runs,
    )


def _pairs(
    before: PastRun, after: PastRun
) -> Iterator[tuple[str, list[PastStage], list[PastStage]]]:
    for name in dict.fromkeys(stage.name for stage in before.stages):
        a, b = _whole(before, name), _whole(after, name)
        if a and b:
            yield name, a, b


def _whole(run: PastRun, name: str) -> list[PastStage]:
    return [stage for stage in run.stages if stage.name == name and stage.is_whole]


def _names(run: PastRun) -> str:
    return ", ".join(dict.fromkeys(stage.name for stage in run.stages))


def _change(
    metric: str, a: Sequence[PastStage], b: Sequence[PastStage], between_runs: float
) -> Change | None:
    """The change over all repeats, None unless each of them has the figure."""
    x = [stage.figures[metric] for stage in a if metric in stage.figures]
    y = [stage.figures[metric] for stage in b if metric in stage.figures]
    if (len(x), len(y)) != (len(a), len(b)):
        return None
    test = difference_between if metric == FAILED else change_between
    return test(x, y, between_runs=between_runs)


def _compared(
    key: tuple[str, str],
    change: Change,
    p_of: Mapping[tuple[str, str], float],
    *,
    is_judged: bool,
    least: float,
) -> Compared:
    metric, p = key[1], p_of.get(key)
    at_least = LEAST_FAILED if metric == FAILED else least
    more_is_better = metric in _MORE_IS_BETTER
    told = None
    if is_judged:
        tests = max(len(p_of), 1)
        told = detectable(change, alpha=ALPHA, power=POWER, at_least=at_least, num_tests=tests)
    return Compared(
        metric=metric,
        change=change,
        is_judged=is_judged,
        p=p,
        detectable=told,
        verdict=_verdict(change, p, at_least, more_is_better) if is_judged else None,
    )


def _verdict(change: Change, p: float | None, least: float, more_is_better: bool) -> Verdict:
    if p is None:
        return Verdict.UNKNOWN
    if p > ALPHA:
        return Verdict.NOISE
    if abs(change.change) <= least:
        return Verdict.SMALL
    return Verdict.BETTER if (change.change > 0) == more_is_better else Verdict.WORSE


def _settings(before: PastRun, after: PastRun) -> Iterator[Setting]:
    def of(run: PastRun) -> dict[str, Any]:
        server = {f"server.{name}": value for name, value in run.server.items()}
        made = {f"k31ctl.{name}": value for name, value in run.made_with.items()}
        return dict(run.inputs) | server | made

    a, b = of(before), of(after)
    for name in sorted(a.keys() & b.keys() - _SAID_ELSEWHERE):
        if a[name] != b[name]:
            is_load = name in OF_THE_LOAD
            yield Setting(name=name, before=a[name], after=b[name], is_load=is_load)
    if before.files != after.files and before.files and after.files:
        yield Setting(
            name="sha256 of the trace or data set",
            before=", ".join(digest[:12] for digest in before.files),
            after=", ".join(digest[:12] for digest in after.files),
            is_load=True,
        )


def _notes(before: PastRun, after: PastRun) -> Iterator[str]:
    for run, other in ((before, after), (after, before)):
        if run.state != "complete":
            yield f"{run.where} is {run.state}, not complete"
        left = [n for n in dict.fromkeys(s.name for s in run.stages) if not _whole(other, n)]
        if left:
            yield f"only in {run.where}: {', '.join(left)}"
        invalid = dict.fromkeys(s.name for s in run.stages if not s.is_valid)
        if invalid:
            yield f"{run.where}: the client did not keep up at {', '.join(invalid)}"
