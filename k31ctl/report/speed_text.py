"""Speed for a person at a terminal: low, expected, high, and what bounds each."""

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from k31ctl.core.deployment import Cell
from k31ctl.core.estimate import Estimate
from k31ctl.core.performance import Performance
from k31ctl.core.speed_plan import SpeedPlan
from k31ctl.core.step import Part

if TYPE_CHECKING:
    from k31ctl.core.simulated import Simulated

WIDTH = 80
TOKENS_PER_K = 1024
MS = 1e3
LABEL_WIDTH = 35
LABEL_INDENT = 4
BAR_WIDTH = 24
PARTS = {
    "dense": "dense weights",
    "experts": "routed experts",
    "attention": "latent attention",
    "index": "index scores",
    "state": "KDA state",
    "linear": "KDA recurrence",
    "activations": "activations",
    "launch": "kernel launches and gaps",
    "step": "scheduler and sampling",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
    "pipeline": "pipeline hops",
    "draft": "draft model",
}


def speed_lines(plan: SpeedPlan, *, breakdown: bool, mark: str) -> list[str]:
    """The block on speed; what is missing is said in one line."""
    found = plan.performance
    if found is None:
        return [f"  speed: none, since {plan.why_not}"]
    load = f"  {_load_text(found)}"
    # A long load has a line of its own, so that the columns stay where they are.
    lines = [load] if len(load) > LABEL_WIDTH + LABEL_INDENT else []
    first = "" if lines else load
    lines.append(
        f"{first:<{LABEL_WIDTH + LABEL_INDENT}}{'low':>9}{'expected':>10}{'high':>9}  bound by"
    )
    lines += [
        _row("TTFT, s", found.ttft_s, 1.0, f"{found.bound_by} {mark}"),
        _row("TPOT, ms", found.tpot_s, MS),
        _row("tokens/s for each user", found.tok_s_per_user, 1.0),
        _row("output tokens/s in all", found.output_tok_s, 1.0),
        _row("tokens/s per GPU, in and out", found.total_tok_s_per_gpu, 1.0),
        _row("tokens/s per GPU, prefill alone", found.prefill_tok_s_per_gpu, 1.0),
    ]
    if plan.simulated is not None:
        lines += _played(plan.simulated)
    elif found.waiting:
        lines += wrap(
            f"{found.running:,.0f} run at once, which is what the cache holds; "
            f"{found.waiting:,.0f} wait, and TTFT counts the waiting",
            WIDTH,
            initial_indent="  ",
            subsequent_indent="    ",
        )
    if len(plan.curve) > 1:
        lines += ["", *_curve(plan.curve)]
    if breakdown:
        lines += ["", *_breakdown("a decode step", found.decode_parts)]
        chunk = f"a prefill chunk of {found.chunk_tokens:,.0f} tokens"
        lines += ["", *_breakdown(chunk, found.prefill_parts)]
    return lines


def cell_lines(found: Sequence[tuple[Cell, Performance]]) -> list[str]:
    """A row of speed for each cell that anything can be said of."""
    lines = ["   context  requests    TTFT     TPOT     output  tok/s    bound"]
    lines.append("    tokens                 s       ms      tok/s  /user       by")
    for cell, speed in found:
        waits = "  some wait" if speed.waiting else ""
        lines.append(
            f"{_tokens(cell.context_tokens):>10}{cell.batch:>10,}{number(speed.ttft_s.value):>8}"
            f"{number(speed.tpot_s.value * MS):>9}{number(speed.output_tok_s.value):>11}"
            f"{number(speed.tok_s_per_user.value):>7}{speed.bound_by:>9}{waits}"
        )
    return lines


def _played(played: "Simulated") -> list[str]:
    """What the simulation saw: the tail of each latency, the queue, and the service levels."""
    found = played.summary
    each = f" on each of {played.num_groups} groups" if played.num_groups > 1 else ""
    texts = [
        f"played out: {found.num_requests:,} requests in {found.duration_s:,.0f} s{each}, "
        f"{found.mean_running:.1f} running and {found.mean_waiting:.1f} waiting on average, "
        f"{found.preemptions:,} preempted, cache at most {found.kv_peak_fraction:.0%} full "
        f"(seed {played.seed})"
    ]
    texts += [
        f"{name} p50 {number(s.p50_s * f)}, p90 {number(s.p90_s * f)}, p99 {number(s.p99_s * f)} "
        f"{unit}"
        for name, s, f, unit in (
            ("TTFT", found.ttft, 1.0, "s"),
            ("TPOT", found.tpot, MS, "ms"),
            ("longest gap", found.itl, MS, "ms"),
        )
        if s is not None
    ]
    texts += _levels(played)
    texts += played.notes
    return [
        line
        for text in texts
        for line in wrap(text, WIDTH, initial_indent="    ", subsequent_indent="      ")
    ]


def _levels(played: "Simulated") -> list[str]:
    good = played.goodput
    if good is None:
        return []
    kept = "kept" if good.met else "not kept"
    limits = ", ".join(
        f"{k.limit.name} {number(k.actual_s or 0.0)} of {k.limit.at_most_s:g}" for k in good.limits
    )
    return [
        f"service levels {kept}: {limits}; {good.good_fraction:.1%} of the requests keep all of "
        f"them, {number(good.good_output_tok_s * played.num_groups)} output tokens/s of goodput"
    ]


def number(value: float) -> str:
    """Three figures that count, with thousands marked, never in powers of ten."""
    if value >= 100:  # noqa: PLR2004 - from here on whole numbers have three figures
        return f"{value:,.0f}"
    if value >= 10:  # noqa: PLR2004
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _load_text(found: Performance) -> str:
    load = found.workload
    cached = f" ({100 * load.cached_fraction:.3g} % cached)" if load.cached_fraction else ""
    asked = f"{load.concurrency:,}" if load.concurrency else f"{load.rate_per_s:g}/s"
    return (
        f"speed at {asked} x {_tokens(load.prompt_tokens)}{cached} in, "
        f"{_tokens(load.output_tokens)} out"
    )


def _tokens(count: int) -> str:
    if count >= TOKENS_PER_K and count % TOKENS_PER_K == 0:
        return f"{count // TOKENS_PER_K:,}k"
    return f"{count:,}"


def _row(label: str, estimate: Estimate, factor: float, bound: str = "") -> str:
    low, value, high = (number(v * factor) for v in (estimate.low, estimate.value, estimate.high))
    return f"    {label:<{LABEL_WIDTH}}{low:>9}{value:>10}{high:>9}  {bound}".rstrip()


def _curve(points: Sequence[Performance]) -> list[str]:
    """A small bar chart: throughput by concurrency, with the latencies beside it."""
    most = max(point.total_tok_s_per_gpu.value for point in points)
    lines = ["  at once   TTFT s  TPOT ms   tok/s user   tok/s/GPU, in and out"]
    for point in points:
        rate = point.total_tok_s_per_gpu.value
        bar = "#" * max(1, round(BAR_WIDTH * rate / most))
        waits = " waits" if point.waiting else ""
        lines.append(
            f"  {point.workload.concurrency:>7,}{number(point.ttft_s.value):>9}"
            f"{number(point.tpot_s.value * MS):>9}{number(point.tok_s_per_user.value):>13}"
            f"{number(rate):>9} {bar}{waits}"
        )
    return lines


def _breakdown(title: str, parts: Sequence[Part]) -> list[str]:
    total = sum(part.seconds for part in parts)
    head = f"  {title}, {number(total * MS)} ms"
    lines = [f"{head:<44}{'ms':>8}{'share':>7}{'limit ms':>10}  bound by"]
    for part in sorted(parts, key=lambda part: -part.seconds):
        limit = number(part.limit_s * MS) if part.limit_s else "-"
        lines.append(
            f"    {PARTS[part.name]:<40}{number(part.seconds * MS):>8}"
            f"{part.seconds / total:>7.0%}{limit:>10}  {part.bound_by}"
        )
        lines += wrap(
            f"{part.basis}: {part.source}",
            WIDTH,
            initial_indent="      ",
            subsequent_indent="      ",
        )
    return lines
