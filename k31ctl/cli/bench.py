"""``k31ctl bench``: load an endpoint and measure it."""

import os
import time
from random import Random
from typing import Annotated

import typer

from k31ctl.cli.bench_compare import compare
from k31ctl.cli.bench_diff import diff
from k31ctl.cli.bench_hw import hw
from k31ctl.cli.bench_load_options import (
    BudgetOpt,
    BurstinessOpt,
    ConcurrencyOpt,
    ConstantOpt,
    DurationOpt,
    RampOpt,
    RateOpt,
    RepeatOpt,
    RequestsOpt,
    SaturateOpt,
    SloOpt,
    SpeedOpt,
    TraceOpt,
    WarmupOpt,
)
from k31ctl.cli.bench_options import (
    AgainstOpt,
    BaselineOpt,
    GapTimeoutOpt,
    Http2Opt,
    InFlightOpt,
    KeyOpt,
    MaxRegressionOpt,
    OutOpt,
    TimeoutOpt,
    UrlArg,
)
from k31ctl.cli.bench_report import report
from k31ctl.cli.bench_request_options import (
    BodyOpt,
    CompletionsOpt,
    DatasetOpt,
    EffortOpt,
    IgnoreEosOpt,
    ImageSizeOpt,
    ImagesOpt,
    ModelOpt,
    SeedOpt,
    SharedOpt,
    SpreadOpt,
    ThinkOpt,
    TurnsOpt,
    parse_extra,
)
from k31ctl.cli.conformance import conformance
from k31ctl.cli.options import (
    CsvOpt,
    HtmlOpt,
    JsonOpt,
    JunitOpt,
    MarkdownOpt,
    OutputTokensOpt,
    PromptTokensOpt,
    gate_option,
)

app = typer.Typer(no_args_is_help=True, help="Load an endpoint and measure what it gives.")


@app.callback()
def bench() -> None:
    """Load an endpoint and measure what it gives: k31ctl bench URL."""


app.command()(diff)
app.command()(report)


@app.command()
def load(
    url: UrlArg,
    concurrency: ConcurrencyOpt = None,
    rate: RateOpt = None,
    ramp: RampOpt = None,
    trace: TraceOpt = None,
    speed: SpeedOpt = 1.0,
    burstiness: BurstinessOpt = 1.0,
    duration: DurationOpt = None,
    requests: RequestsOpt = None,
    repeat: RepeatOpt = 1,
    warmup: WarmupOpt = 1,
    time_budget: BudgetOpt = None,
    slo: SloOpt = None,
    model: ModelOpt = None,
    prompt_tokens: PromptTokensOpt = None,
    output_tokens: OutputTokensOpt = None,
    spread: SpreadOpt = 0.0,
    shared_prefix: SharedOpt = 0.0,
    dataset: DatasetOpt = None,
    turns: TurnsOpt = 1,
    think: ThinkOpt = 0.0,
    images: ImagesOpt = 0,
    image_size: ImageSizeOpt = None,
    reasoning_effort: EffortOpt = None,
    body: BodyOpt = None,
    seed: SeedOpt = 0,
    timeout: TimeoutOpt = 600.0,
    gap_timeout: GapTimeoutOpt = 60.0,
    most_in_flight: InFlightOpt = 8192,
    api_key_env: KeyOpt = "K31CTL_API_KEY",
    out: OutOpt = None,
    against: AgainstOpt = None,
    csv: CsvOpt = None,
    markdown: MarkdownOpt = None,
    junit: JunitOpt = None,
    html: HtmlOpt = None,
    baseline: BaselineOpt = None,
    max_regression: MaxRegressionOpt = None,
    gate: Annotated[list[str] | None, gate_option("ttft_s.p99<=2")] = None,
    *,
    http2: Http2Opt = False,
    constant: ConstantOpt = False,
    saturate: SaturateOpt = False,
    completions: CompletionsOpt = False,
    ignore_eos: IgnoreEosOpt = True,
    as_json: JsonOpt = False,
) -> None:
    """Send requests to an endpoint and measure its answers; the word load may be left out.

    k31ctl bench http://127.0.0.1:8000 --concurrency 1,8,64 --duration 60

    k31ctl bench http://127.0.0.1:8000 --rate 4 --slo 'ttft_p99_s<=2' --out run

    k31ctl bench http://127.0.0.1:8000 --against plan.json --gate 'against.tpot_s.ratio<=1.2'
    """
    from k31ctl.api.measuring import asked_load
    from k31ctl.api.runs import hold_stages, plan_at
    from k31ctl.bench.asked import bench_request
    from k31ctl.bench.baseline import read_baseline
    from k31ctl.bench.gate_names import require_known
    from k31ctl.bench.job import Bench
    from k31ctl.core.gates import parse_gate
    from k31ctl.report.bench import show_bench
    from k31ctl.report.targets import Targets

    held = None if against is None else plan_at(against)

    gates = [parse_gate(text) for text in gate or ()]
    require_known(gates)
    asked = asked_load(
        url,
        concurrency=concurrency or (),
        rate=rate or (),
        ramp=ramp,
        trace=trace,
        speed=speed,
        burstiness=burstiness,
        constant=constant,
        duration=duration,
        requests=requests,
        repeat=repeat,
        warmup=warmup,
        saturate=saturate,
        time_budget=time_budget,
        slo=slo,
        model=model,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        spread=spread,
        shared_prefix=shared_prefix,
        dataset=dataset,
        turns=turns,
        think=think,
        images=images,
        image_size=image_size,
        completions=completions,
        ignore_eos=ignore_eos,
        reasoning_effort=reasoning_effort,
        body=parse_extra(body or []),
        seed=seed,
        timeout=timeout,
        gap_timeout=gap_timeout,
        most_in_flight=most_in_flight,
        api_key_env=api_key_env,
        out=out,
        http2=http2,
        plan_path=against,
        plan=None if held is None else held.document,
    )
    request = bench_request(asked, environment=os.environ, random=Random(seed))
    show_bench(
        Bench(request, clock=time.perf_counter).run(),
        inputs=request.described,
        targets=Targets(csv=csv, markdown=markdown, junit=junit, html=html),
        gates=gates,
        baseline=read_baseline(
            baseline,
            max_regression,
            inputs=request.described,
            names=[stage.name for stage in request.stages],
        ),
        as_json=as_json,
        hold=None if held is None else lambda finished: hold_stages(held, finished.stages, seed),
        plan=request.plan,
        plan_notes=() if held is None else held.notes,
    )


app.command()(compare)
app.command()(hw)
app.command()(conformance)
