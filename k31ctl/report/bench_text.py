"""A measurement in words: the answer first, then where it comes from, then what to beware of."""

from k31ctl.bench.events import Finished
from k31ctl.bench.gauges import Gauges
from k31ctl.bench.gpus import GpuUse
from k31ctl.bench.repeats import Repeated, repeated
from k31ctl.bench.result import ServerMetrics, Spread, StageResult, is_late
from k31ctl.core.steady import LEAST_DRIFT, Steady
from k31ctl.report.bench_table import sweep_lines
from k31ctl.report.durations import duration
from k31ctl.report.lines import folded, printable

_MS = 1e3
_MOST_SHOWN = 80
_WORTH_TELLING = 0.02


def bench_text(finished: Finished, best: StageResult) -> str:
    """Return the summary."""
    lines = [*folded(_answer(finished, best), indent=""), ""]
    if len(finished.stages) > 1:
        lines += [*sweep_lines(finished.stages), "", f"{best.name}, the most output tokens:"]
    lines += [*_latencies(best), "", *_counts(best), *_client(best)]
    if best.server_metrics is not None:
        lines += _server(best.server_metrics)
    if best.gauges is not None:
        lines += _gauges(best.gauges)
    if best.gpu is not None:
        lines += _gpu(best.gpu)
    for again in repeated(finished.stages):
        lines += ["", *_repeat_lines(again)]
    notes = warnings(finished)
    if notes:
        lines += ["", "beware"]
        for note in notes:
            lines += folded(note, indent="  ")
    lines += ["", f"prompts: {finished.tokens_from}"]
    if finished.record:
        lines.append(f"record:  {finished.record}")
    return "".join(printable(line).rstrip() + "\n" for line in lines)


def _answer(finished: Finished, best: StageResult) -> str:
    who = (
        f"{best.concurrency:,} at a time"
        if best.concurrency is not None
        else f"{best.request_rate:.4g} requests/s"
    )
    if best.ttft_s is None:
        return f"{finished.server.model} answered none of {best.requests:,} requests."
    text = (
        f"{finished.server.model} gives {best.output_tok_s:,.0f} output tokens/s at {who}: "
        f"first token after {_ms(best.ttft_s.mean)} ms (p99 {_ms(best.ttft_s.p99)})"
    )
    if best.tpot_s is not None:
        text += f", then one every {_ms(best.tpot_s.mean)} ms"
    return text + "."


def _latencies(stage: StageResult) -> list[str]:
    rows = [
        ("first token (TTFT)", stage.ttft_s),
        ("first reasoning token", stage.ttft_reasoning_s),
        ("first answer token", stage.ttft_answer_s),
        ("gap between events", stage.itl_s),
        ("gap per token (ITL)", stage.itl_token_s),
        ("per output token (TPOT)", stage.tpot_s),
        ("end to end", stage.e2e_s),
        ("sent late by", stage.arrival_lag_s),
    ]
    heads = "".join(f"{head:>9}" for head in ("mean", "p50", "p90", "p95", "p99", "max"))
    lines = [f"  {'latency, ms':<24}{heads}"]
    return lines + [f"  {name:<24}{_cells(found)}" for name, found in rows if found is not None]


def _cells(found: Spread) -> str:
    values = (found.mean, found.p50, found.p90, found.p95, found.p99, found.max)
    return "".join(f"{_ms(value):>9}" for value in values)


def _ms(seconds: float) -> str:
    value = seconds * _MS
    return f"{value:,.0f}" if value >= 10_000 else f"{value:.4g}"  # noqa: PLR2004


def _counts(stage: StageResult) -> list[str]:
    tokens = stage.tokens
    failed = "".join(f", {count:,} {kind}" for kind, count in stage.errors_by_kind.items())
    lines = [
        f"  requests   {stage.completed:,} answered, {stage.errors:,} failed{failed}",
        f"  rates      {stage.request_rate:.4g} requests/s, {stage.output_tok_s:,.0f} output and "
        f"{stage.total_tok_s:,.0f} total tokens/s",
        f"             over the {duration(stage.rates_over_s)} of {stage.rates_over}; "
        f"{duration(stage.duration_s)} from the first request to the last end",
    ]
    if stage.goodput is not None:
        lines.append(
            f"  goodput    {stage.goodput:.4g} requests/s within --slo, "
            f"{stage.good_fraction or 0:.1%} of all"
        )
    parts = [f"{tokens.prompt:,} prompt", f"{tokens.output:,} output"]
    parts += [f"{tokens.reasoning:,} of it reasoning"] if tokens.reasoning is not None else []
    parts += [f"{tokens.cached:,} cached"] if tokens.cached is not None else []
    lines += [
        f"  tokens     {', '.join(parts)}",
        f"             counted by {tokens.output_source}, in {tokens.events:,} events",
    ]
    return lines


def _client(stage: StageResult) -> list[str]:
    client = stage.client
    verdict = "kept up" if client.is_valid else "DID NOT KEEP UP, the figures are its own"
    share = "" if client.lag_of_itl is None else f", {client.lag_of_itl:.1%} of a gap"
    return [
        f"  client     {verdict}: at most {_ms(client.lag.mean_s)} ms behind on average{share},",
        f"             p99 {_ms(client.lag.p99_s)} ms; {client.cpu_fraction:.0%} of a core"
        f"{_waited(stage)}",
    ]


def _waited(stage: StageResult) -> str:
    """What other work on this machine took from the client, where it is worth a word."""
    wait_s = stage.client.cpu_wait_s
    if wait_s is None or wait_s < _WORTH_TELLING * stage.duration_s:
        return ""
    return f", and waited for one {wait_s / stage.duration_s:.0%} of the time"


def _server(told: ServerMetrics) -> list[str]:
    """What the server counted of itself, so far as it tells."""
    times = (
        ("TTFT", told.ttft_mean_s),
        ("gap per token", told.itl_mean_s),
        ("end to end", told.e2e_mean_s),
        ("queue", told.queue_mean_s),
    )
    parts = [f"{name} {_ms(value)} ms" for name, value in times if value is not None]
    if told.preemptions is not None:
        parts.append(f"{told.preemptions:,.0f} preemptions")
    if told.prefix_hit_fraction is not None:
        parts.append(f"{told.prefix_hit_fraction:.1%} of the prompt found in its cache")
    if told.accepted_per_draft is not None:
        parts.append(f"{told.accepted_per_draft:.2f} tokens accepted a draft")
    first, *rest = folded(f"{told.engine} says of itself: {', '.join(parts)}", indent=" " * 13)
    return [f"  {'server':<11}{first.strip()}", *rest]


def _gauges(told: Gauges) -> list[str]:
    """What the server said of the moment, once a second."""
    parts = []
    if told.running_mean is not None:
        parts.append(f"{told.running_mean:.3g} requests ran")
    if told.waiting_mean is not None:
        parts.append(f"{told.waiting_mean:.3g} waited (most {told.waiting_max:,.0f})")
    if told.cache_mean is not None:
        parts.append(f"its KV cache was {told.cache_mean:.0%} full (most {told.cache_max:.0%})")
    text = f"on average of {told.num_samples:,} looks {', '.join(parts)}"
    return folded(text, indent=" " * 13) if parts else []


def _gpu(used: GpuUse) -> list[str]:
    """What the GPUs of this machine did."""
    busy = "" if used.utilisation_mean is None else f", busy {used.utilisation_mean:.0%} of it"
    name = used.names[0] if used.names else "GPU"
    text = (
        f"{len(used.names)} x {name} here: {used.power_mean_w:,.0f} W on average{busy}; "
        f"{used.output_tokens_per_j:.3g} output tokens a joule ({used.energy_source})"
    )
    first, *rest = folded(text, indent=" " * 13)
    return [f"  {'GPU':<11}{first.strip()}", *rest]


def _repeat_lines(again: Repeated) -> list[str]:
    lines = [f"  {again.name}, {again.num_runs} runs: mean and its 95 % interval"]
    for name in ("output_tok_s", "request_rate", "ttft_s.mean", "ttft_s.p99", "itl_s.p99"):
        found = again.metrics.get(name)
        if found is not None:
            lines.append(f"    {name:<16}{found.mean:11.5g}  {found.low:.5g} to {found.high:.5g}")
    return lines


def warnings(finished: Finished) -> list[str]:
    """Return what a reader has to know before using the numbers."""
    found = list(finished.notes)
    for stage in finished.stages:
        tokens, at = stage.tokens, f"{stage.name}: "
        found += [f"{at}NOT VALID: {reason}" for reason in stage.client.reasons]
        if not stage.is_whole:
            found.append(f"{at}stopped early; {stage.abandoned:,} requests were cut off")
        if stage.steady is not None and not stage.steady.is_steady:
            found.append(f"{at}{_unsteady(stage, stage.steady)}")
        late = stage.arrival_lag_s
        if late is not None and is_late(stage):
            found.append(
                f"{at}requests were sent late (p99 {_ms(late.p99)} ms); latencies count from when "
                "they were due"
            )
        if tokens.num_without_usage:
            found.append(
                f"{at}{tokens.num_without_usage:,} answers told no usage; their tokens are counted "
                "as one an event"
            )
        if tokens.num_disagreeing:
            found.append(
                f"{at}{tokens.num_disagreeing:,} answers had more events than tokens in their "
                "usage, or more tokens in it than were asked for"
            )
        if stage.num_without_done:
            found.append(f"{at}{stage.num_without_done:,} streams ended without [DONE]")
        for kind, detail in stage.error_details.items():
            text = detail.strip().replace("\n", " ")[:_MOST_SHOWN]
            found.append(f"{at}{kind}, for example: {text}")
    return found


def _unsteady(stage: StageResult, steady: Steady) -> str:
    what = "output tokens/s" if stage.concurrency is not None else "TTFT"
    if abs(steady.drift) > LEAST_DRIFT:
        return f"no steady state: {what} changed by {steady.drift:+.0%} over the stage"
    return f"no steady state before half of the time: {what} was still settling"
