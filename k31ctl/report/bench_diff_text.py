"""Two runs against each other in words: what changed beyond noise, then how, then why it might."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from k31ctl.bench.compare import ALPHA, JUDGED, Compared, ComparedStage, Comparison, Verdict
from k31ctl.bench.past import FAILED
from k31ctl.core.noise import Change
from k31ctl.report.lines import folded, printable
from k31ctl.units import percent

NAMES: Final = {
    "request_rate": "requests/s",
    "output_tok_s": "output tokens/s",
    "total_tok_s": "total tokens/s",
    "goodput": "goodput, requests/s",
    FAILED: "failed requests, %",
}
LATENCIES: Final = {
    "ttft_s": "TTFT",
    "itl_s": "event gap",
    "itl_token_s": "token gap",
    "tpot_s": "TPOT",
    "e2e_s": "end to end",
}
WORDS: Final = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "WORSE",
    Verdict.SMALL: "small",
    Verdict.NOISE: "noise",
    Verdict.UNKNOWN: "unknown",
}
_MOST_SHOWN: Final = 60


def diff_text(found: Comparison) -> str:
    """Return the summary."""
    lines = [*folded(answer(found), indent=""), ""]
    lines += [f"  before  {found.before}", f"  after   {found.after}"]
    for stage in found.stages:
        lines += ["", *_stage_lines(stage)]
    if found.settings:
        lines += ["", "not the same in both"]
        for setting in found.settings:
            loud = "  ANOTHER LOAD" if setting.is_load else ""
            change = f"{value(setting.before)} -> {value(setting.after)}"
            lines += folded(f"{setting.name}: {change}{loud}", indent="  ")
    if found.notes:
        lines += ["", "beware"]
        for note in found.notes:
            lines += folded(note, indent="  ")
    lines += ["", *folded(how(found), indent="")]
    return "".join(printable(line).rstrip() + "\n" for line in lines)


def answer(found: Comparison) -> str:
    """Return what the comparison comes to, in a sentence."""
    judged = [m for stage in found.stages for m in stage.metrics if m.is_judged]
    if all(metric.verdict is Verdict.UNKNOWN for metric in judged):
        return (
            "Whether anything changed cannot be told: a noise is known from repeats only "
            "(--repeat 5)."
        )
    parts = []
    for word, changes in (("worse", found.worse), ("better", found.better)):
        if changes:
            parts.append(f"{len(changes)} {word}: {', '.join(_named(*each) for each in changes)}")
    if not parts:
        return f"Nothing changed beyond noise by more than {percent(found.least)}."
    return f"Of {len(judged)} figures {'; '.join(parts)}."


def how(found: Comparison) -> str:
    """Return the rule that verdicts follow."""
    return (
        "Changed means: by Welch's t test over repeats, or Yuen's without a fifth of them at "
        f"either end, with Holm's adjustment, less than {percent(ALPHA)} likely to be called so "
        f"anywhere in this table where nothing changed; and by more than {percent(found.least)}. "
        f"Runs of the same are taken to differ by {percent(found.between_runs)} (standard "
        "deviation) beside the noise between their repeats."
    )


def figure_name(metric: str) -> str:
    """Return a metric as a reader knows it, with its unit."""
    if metric in NAMES:
        return NAMES[metric]
    head, _, part = metric.partition(".")
    return f"{LATENCIES[head]} {part}, ms"


def shown(metric: str, figure: float) -> str:
    """Return a figure in the unit of its name."""
    if metric == FAILED:
        return f"{figure * 100:.3g}"
    return f"{figure * 1e3:,.4g}" if "." in metric else f"{figure:,.5g}"


def change_text(metric: str, share: float | None) -> str:
    """Return a change with its sign; shares of failures change by points."""
    if share is None:
        return "-"
    unit = "pp" if metric == FAILED else "%"
    return f"{share * 100:+.3g} {unit}"


def interval_text(change: Change) -> str:
    """Return the 95 % interval of a change in percent."""
    if change.low is None or change.high is None:
        return "-"
    return f"{change.low * 100:+.3g} to {change.high * 100:+.3g}"


def value(found: Any) -> str:
    """Return a setting as JSON, cut short."""
    text = json.dumps(found, ensure_ascii=False) if not isinstance(found, str) else found
    return text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "..."


def judged(stage: ComparedStage) -> Sequence[Compared]:
    """Return the metrics that have a verdict, the chosen ones first in their own order."""
    order = {name: place for place, name in enumerate(JUDGED)}
    found = [metric for metric in stage.metrics if metric.is_judged]
    return sorted(found, key=lambda metric: order.get(metric.metric, len(order)))


def _named(stage: str, metric: Compared) -> str:
    what = figure_name(metric.metric).partition(",")[0]
    return f"{what} {change_text(metric.metric, metric.change.change)} at {stage}"


def _stage_lines(stage: ComparedStage) -> Iterator[str]:
    title = f"{stage.name}, {stage.num_before} against {stage.num_after} repeats"
    yield title
    yield f"  {'':<21}{'before':>10}{'after':>10}{'change':>10}{'95 % of it':>17}  verdict"
    for metric in judged(stage):
        change, name = metric.change, metric.metric
        assert metric.verdict is not None
        yield (
            f"  {figure_name(name):<21}{shown(name, change.before):>10}"
            f"{shown(name, change.after):>10}{change_text(name, change.change):>10}"
            f"{interval_text(change):>17}  {WORDS[metric.verdict]}"
        )
    seen = [
        f"{figure_name(m.metric).partition(',')[0]} {percent(m.detectable)}"
        for m in judged(stage)
        if m.detectable is not None and m.metric != FAILED
    ]
    if seen:
        yield from folded(
            f"changes that would have been told 9 times in 10: {', '.join(seen)}", indent="  "
        )
