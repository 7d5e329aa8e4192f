"""What was asked for on the command line, as stages and everything else that a run needs."""

from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

from k31ctl.bench.client import Limits
from k31ctl.bench.endpoint import key_in, parse_endpoint
from k31ctl.bench.images import Images
from k31ctl.bench.request import BenchRequest
from k31ctl.bench.stage import Sizes, Stage, closed_stage, open_stage, ramp_stage, trace_stage
from k31ctl.catalog.dataset import DatasetRow, read_dataset
from k31ctl.catalog.trace import read_trace
from k31ctl.core.slo import parse_slo
from k31ctl.errors import UsageError
from k31ctl.values import frozen

_DURATION_S: Final = 30.0
_PROMPT_TOKENS: Final = 1024
_OUTPUT_TOKENS: Final = 128
_CONCURRENCY: Final = 1
_CONNECT_S: Final = 10.0
_MOST_ARRIVALS: Final = 1_000_000


@frozen
class AskedLoad:
    """Options as they were given; None is what was not. ``plan`` is the document at its path."""

    url: str
    concurrency: tuple[int, ...]
    rates: tuple[float, ...]
    ramp: tuple[float, float] | None
    trace: Path | None
    speed: float
    burstiness: float | None
    duration_s: float | None
    num_requests: int | None
    repeat: int
    num_warmup: int
    seeks_saturation: bool
    budget_s: float | None
    slo: str | None
    model: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    spread_fraction: float
    shared_fraction: float
    dataset: Path | None
    num_turns: int
    think_s: float
    num_images: int
    image_size: tuple[int, int]
    is_chat: bool
    ignore_eos: bool
    reasoning_effort: str | None
    body: Mapping[str, Any]
    seed: int
    timeout_s: float
    gap_timeout_s: float
    most_in_flight: int
    key_variable: str
    is_http2: bool
    folder: Path | None
    plan_path: Path | None
    plan: Mapping[str, Any] | None


def bench_request(
    asked: AskedLoad, *, environment: Mapping[str, str], random: Random
) -> BenchRequest:
    """Return the run that was asked for; raises UsageError where options contradict."""
    _check(asked)
    sizes = Sizes(
        prompt_tokens=asked.prompt_tokens or _PROMPT_TOKENS,
        output_tokens=asked.output_tokens or _OUTPUT_TOKENS,
        spread_fraction=asked.spread_fraction,
    )
    stages = tuple(_stages(asked, sizes, random))
    extra: dict[str, Any] = {"ignore_eos": True} if asked.ignore_eos and not asked.dataset else {}
    if asked.reasoning_effort is not None:
        extra["reasoning_effort"] = asked.reasoning_effort
    return BenchRequest(
        endpoint=parse_endpoint(
            asked.url,
            token=key_in(asked.key_variable, environment),
            is_http2=asked.is_http2,
        ),
        environment=environment,
        model=asked.model,
        is_chat=asked.is_chat,
        stages=stages,
        sizes=sizes,
        shared_fraction=asked.shared_fraction,
        lines=_lines(asked),
        num_turns=asked.num_turns,
        think_s=asked.think_s,
        images=_images(asked),
        num_images=asked.num_images,
        extra=extra | dict(asked.body),
        limits=Limits(total_s=asked.timeout_s, gap_s=asked.gap_timeout_s, connect_s=_CONNECT_S),
        most_in_flight=asked.most_in_flight,
        num_warmup=asked.num_warmup,
        seeks_saturation=asked.seeks_saturation,
        burstiness=asked.burstiness,
        duration_s=_limited(asked),
        budget_s=inf if asked.budget_s is None else asked.budget_s,
        seed=asked.seed,
        slo=parse_slo(asked.slo) if asked.slo is not None else None,
        folder=asked.folder,
        files=tuple(path for path in (asked.trace, asked.dataset) if path is not None),
        plan=asked.plan,
        described=_described(asked, sizes, extra | dict(asked.body)),
    )


def _check(asked: AskedLoad) -> None:
    is_open = bool(asked.rates) or asked.ramp is not None or asked.trace is not None
    kinds = [asked.concurrency, asked.rates, asked.ramp, asked.trace]
    if sum(map(bool, kinds)) > 1:
        raise UsageError(
            "a load is one of --concurrency, --rate, --ramp and --trace",
            where="--concurrency, --rate, --ramp, --trace",
            remedy="run them one after another",
        )
    if asked.num_turns > 1 and not (asked.is_chat and asked.dataset is None and not is_open):
        raise UsageError(
            "sessions are chats of users in a closed loop",
            where="--turns",
            remedy="leave out --rate, --ramp, --trace, --dataset and --completions",
        )
    if asked.seeks_saturation and (asked.ramp is not None or asked.trace is not None):
        raise UsageError(
            "saturation is sought with more users or a higher rate",
            where="--saturate",
            remedy="begin with --concurrency 1 or --rate 1",
        )
    if asked.num_images and not (asked.is_chat and asked.dataset is None and asked.num_turns == 1):
        raise UsageError(
            "images go with single synthetic chats",
            where="--images",
            remedy="leave out --dataset, --turns and --completions; a data set may hold images",
        )
    if asked.ramp is not None and asked.num_requests:
        raise UsageError(
            "a ramp is as long as its time",
            where="--ramp, --requests",
            remedy="set --duration instead",
        )
    taken = {"model", "messages", "prompt", "stream", "stream_options"} & asked.body.keys()
    if taken:
        raise UsageError(
            f"{', '.join(sorted(taken))} is set by the load itself",
            where="--body",
            remedy="leave it out",
        )


def _limited(asked: AskedLoad) -> float | None:
    """Return how long is sent, None where the number of requests alone says so."""
    return asked.duration_s or (None if asked.num_requests else _DURATION_S)


def _stages(asked: AskedLoad, sizes: Sizes, random: Random) -> Iterator[Stage]:
    limited = _limited(asked)
    trace = read_trace(asked.trace).load if asked.trace is not None else None
    _check_arrivals(asked, limited or 0.0)
    for repeat in range(asked.repeat):
        if trace is not None:
            yield trace_stage(
                trace, speed=asked.speed, num_requests=asked.num_requests, repeat=repeat
            )
            continue
        if asked.ramp is not None:
            yield ramp_stage(
                asked.ramp,
                burstiness=asked.burstiness,
                sizes=sizes,
                duration_s=limited or _DURATION_S,
                repeat=repeat,
                random=random,
            )
            continue
        for rate in asked.rates:
            yield open_stage(
                rate,
                burstiness=asked.burstiness,
                sizes=sizes,
                duration_s=limited,
                num_requests=asked.num_requests,
                repeat=repeat,
                random=random,
            )
        if not asked.rates:
            for users in asked.concurrency or (_CONCURRENCY,):
                yield closed_stage(
                    users, duration_s=limited, num_requests=asked.num_requests, repeat=repeat
                )


def _check_arrivals(asked: AskedLoad, duration_s: float) -> None:
    """Raise UsageError where more requests would arrive than can be drawn ahead."""
    most = max((*asked.rates, sum(asked.ramp or (0.0,)) / 2), default=0.0) * duration_s
    if most > _MOST_ARRIVALS:
        raise UsageError(
            f"{most:,.0f} arrivals are more than {_MOST_ARRIVALS:,}",
            where="--rate, --ramp",
            remedy="shorten --duration",
        )


def _images(asked: AskedLoad) -> Images | None:
    width, height = asked.image_size
    return Images(seed=asked.seed, width=width, height=height) if asked.num_images else None


def _lines(asked: AskedLoad) -> tuple[DatasetRow, ...]:
    if asked.dataset is None:
        return ()
    found = []
    for row in read_dataset(asked.dataset):
        said = row.said
        if asked.is_chat and isinstance(said, str):
            said = [{"role": "user", "content": said}]
        elif not asked.is_chat and not isinstance(said, str):
            raise UsageError(
                "the data set holds messages, which /completions does not take",
                where="--completions",
                remedy="leave it out",
            )
        found.append(DatasetRow(said=said, output_tokens=row.output_tokens))
    return tuple(found)


def _described(asked: AskedLoad, sizes: Sizes, body: Mapping[str, Any]) -> dict[str, Any]:
    """The load as the record and the answer have it; the key stays out."""
    return {
        "url": asked.url,
        "model": asked.model,
        "concurrency": list(asked.concurrency),
        "rates": list(asked.rates),
        "ramp": None if asked.ramp is None else list(asked.ramp),
        "burstiness": asked.burstiness,
        "trace": None if asked.trace is None else str(asked.trace),
        "speed": asked.speed,
        "duration_s": asked.duration_s,
        "num_requests": asked.num_requests,
        "repeat": asked.repeat,
        "num_warmup": asked.num_warmup,
        "saturate": asked.seeks_saturation,
        "time_budget_s": asked.budget_s,
        "slo": asked.slo,
        "prompt_tokens": sizes.prompt_tokens,
        "output_tokens": sizes.output_tokens,
        "spread_fraction": sizes.spread_fraction,
        "shared_fraction": asked.shared_fraction,
        "dataset": None if asked.dataset is None else str(asked.dataset),
        "num_turns": asked.num_turns,
        "think_s": asked.think_s,
        "num_images": asked.num_images,
        "image_size": list(asked.image_size) if asked.num_images else None,
        "api": "chat" if asked.is_chat else "completions",
        "body": dict(body),
        "seed": asked.seed,
        "timeout_s": asked.timeout_s,
        "gap_timeout_s": asked.gap_timeout_s,
        "most_in_flight": asked.most_in_flight,
        "http2": asked.is_http2,
        "against": None if asked.plan_path is None else str(asked.plan_path),
    }
