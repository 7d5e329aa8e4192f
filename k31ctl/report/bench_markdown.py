"""A measurement as Markdown, such as GitHub shows under a job."""

from collections.abc import Iterator, Mapping, Sequence

from k31ctl.bench.baseline import Regression
from k31ctl.bench.compare import Comparison
from k31ctl.bench.events import Finished
from k31ctl.bench.repeats import Repeated, repeated
from k31ctl.bench.result import Spread, StageResult
from k31ctl.core.gates import Gate
from k31ctl.report.bench_cases import gate_case
from k31ctl.report.bench_diff import cell, diff_markdown
from k31ctl.report.bench_diff_text import figure_name, shown
from k31ctl.report.bench_text import warnings

_MS = 1e3
_REPEATED = (
    "output_tok_s",
    "request_rate",
    "ttft_s.mean",
    "ttft_s.p99",
    "itl_s.p99",
    "tpot_s.mean",
)


def bench_markdown(
    finished: Finished,
    gates: Sequence[Gate],
    measured: Sequence[Mapping[str, object]],
    found: Comparison | None,
    regressed: Sequence[Regression] | None,
) -> str:
    """Return a table of stages, then gates, repeats, what to beware of, and the baseline."""
    server = finished.server
    version = f" ({cell(server.version)})" if server.version else ""
    lines = [f"## {cell(server.model)}{version} at {cell(server.url)}", ""]
    if finished.is_interrupted:
        lines += ["**Stopped early.**", ""]
    lines += [
        "| load | requests/s | output tokens/s | TTFT p50, ms | p99 | TPOT mean, ms "
        "| event gap p99 | end to end p50 | failed | |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    lines += [_stage(stage) for stage in finished.stages]
    lines += ["", *_gates(finished, gates, measured), *_repeats(repeated(finished.stages))]
    lines += [f"> {cell(note)}\n" for note in warnings(finished)]
    lines.append(f"Prompts: {cell(finished.tokens_from)}.")
    text = "\n".join(lines) + "\n"
    return text if found is None else f"{text}\n{diff_markdown(found, regressed)}"


def _stage(stage: StageResult) -> str:
    cells = (
        cell(stage.name) + (f", repeat {stage.repeat + 1}" if stage.repeat else ""),
        f"{stage.request_rate:.4g}",
        f"{stage.output_tok_s:,.0f}",
        _ms(stage.ttft_s, "p50"),
        _ms(stage.ttft_s, "p99"),
        _ms(stage.tpot_s, "mean"),
        _ms(stage.itl_s, "p99"),
        _ms(stage.e2e_s, "p50"),
        f"{stage.errors:,}",
        "" if stage.client.is_valid else "**not valid**",
    )
    return f"| {' | '.join(cells)} |"


def _ms(found: Spread | None, part: str) -> str:
    return "-" if found is None else f"{getattr(found, part) * _MS:,.4g}"


def _gates(
    finished: Finished, gates: Sequence[Gate], measured: Sequence[Mapping[str, object]]
) -> Iterator[str]:
    for gate in gates:
        for stage, names in zip(finished.stages, measured, strict=True):
            case = gate_case(gate, stage, names)
            held = "holds" if case.failure is None else f"**{cell(case.failure)}**"
            yield f"- `{gate.text}` at {cell(stage.name)}: {held}"
    if gates:
        yield ""


def _repeats(found: Sequence[Repeated]) -> Iterator[str]:
    if not found:
        return
    yield "| over repeats | runs | figure | mean | 95 % interval |"
    yield "|---|---:|---|---:|---:|"
    for again in found:
        for name in _REPEATED:
            each = again.metrics.get(name)
            if each is not None:
                between = f"{shown(name, each.low)} to {shown(name, each.high)}"
                yield (
                    f"| {cell(again.name)} | {again.num_runs} | {figure_name(name)} "
                    f"| {shown(name, each.mean)} | {between} |"
                )
    yield ""
