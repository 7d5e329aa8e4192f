"""What a load measured: one value for each stage, and all of them."""

from collections.abc import Mapping

from k31ctl.bench.gauges import Gauges
from k31ctl.bench.gpus import GpuUse
from k31ctl.bench.lag import Lag
from k31ctl.core.steady import Steady
from k31ctl.values import frozen

MOST_LATE_FRACTION = 0.05


@frozen
class Spread:
    """Mean, percentiles over all values (linear between ranks) and maximum."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@frozen
class Tokens:
    """Tokens of the answered requests.

    ``output`` is the server's usage where every answer had one, else the events that carried
    tokens; ``output_source`` says which. ``num_disagreeing`` counts answers with more events than
    tokens in their usage, or with more tokens in it than were asked for.
    """

    prompt: int
    output: int
    output_source: str
    reasoning: int | None
    cached: int | None
    events: int
    num_without_usage: int
    num_disagreeing: int


@frozen
class ClientHealth:
    """Whether the client kept up.

    ``lag`` is the most that the timestamp of an event may be behind its arrival in the kernel,
    ``lateness`` how late this process was woken. ``cpu_wait_s`` is how long it was ready to run and
    other processes had the cores, where the system tells. ``reasons`` says why a measurement is
    not valid.
    """

    cpu_s: float
    cpu_wait_s: float | None
    cpu_fraction: float
    lag: Lag
    lateness: Lag
    lag_of_ttft: float | None
    lag_of_itl: float | None
    is_valid: bool
    reasons: tuple[str, ...]


@frozen
class ServerMetrics:
    """What the server counted of itself during a stage; None is what it does not tell.

    ``prefix_hit_fraction`` is of the tokens that it looked up, ``accepted_per_draft`` the drafted
    tokens that it took at each draft, the token that comes in any case not among them.
    """

    engine: str
    ttft_mean_s: float | None
    itl_mean_s: float | None
    e2e_mean_s: float | None
    queue_mean_s: float | None
    preemptions: float | None
    prefix_hit_fraction: float | None
    accepted_per_draft: float | None


@frozen
class Rates:
    """Answered requests and their tokens per second, and what they are taken over."""

    over: str
    duration_s: float
    request_rate: float
    output_tok_s: float
    total_tok_s: float


@frozen
class StageResult:
    """One stage of a load; latencies in seconds, of answered requests only.

    ``duration_s`` is from the first request to the end of the last. Rates are over the
    ``rates_over_s`` of ``rates_over``: the full load of a closed loop, until no new request is
    sent, or the whole run. ``arrival_lag_s`` is how late requests were sent. Where they arrive at
    set times, latencies count from when a request was due, so that a late client is no advantage;
    users in a closed loop have no such times, and latencies count from the sending. ``itl_s``
    pools the gaps between events of all answers, ``itl_token_s`` the same divided by the tokens
    that an event carried on average. ``steady`` is of the tokens per second of a closed loop, of
    the TTFT of arrivals at one rate, and None where too little is known.
    """

    name: str
    concurrency: int | None
    rate: float | None
    repeat: int
    requests: int
    completed: int
    errors: int
    abandoned: int
    errors_by_kind: Mapping[str, int]
    error_details: Mapping[str, str]
    duration_s: float
    request_rate: float
    output_tok_s: float
    total_tok_s: float
    rates_over: str
    rates_over_s: float
    tokens: Tokens
    ttft_s: Spread | None
    ttft_reasoning_s: Spread | None
    ttft_answer_s: Spread | None
    itl_s: Spread | None
    itl_token_s: Spread | None
    tpot_s: Spread | None
    e2e_s: Spread | None
    goodput: float | None
    good_fraction: float | None
    arrival_lag_s: Spread | None
    most_in_flight: int
    num_connections: int
    num_resent: int
    num_comments: int
    num_without_done: int
    client: ClientHealth
    server_metrics: ServerMetrics | None
    gauges: Gauges | None
    gpu: GpuUse | None
    steady: Steady | None
    is_whole: bool


def is_late(stage: StageResult) -> bool:
    """Whether requests of set times were sent so late that it shows in their latencies."""
    late, ttft = stage.arrival_lag_s, stage.ttft_s
    if stage.concurrency is not None or late is None or ttft is None:
        return False
    return late.p99 > MOST_LATE_FRACTION * ttft.mean
