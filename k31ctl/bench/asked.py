"""What was asked for on the command line, as stages and everything else that a run needs."""

from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from random import Random
from typing import Any, Final

from k31ctl.bench.client import Limits
from k31ctl.bench.endpoint import parse_endpoint
from k31ctl.bench.job import BenchRequest
from k31ctl.bench.stage import Sizes, Stage, closed_stage, open_stage, trace_stage
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
    is_chat: bool
    ignore_eos: bool
    reasoning_effort: str | None
    body: Mapping[str, Any]
    seed: int
    timeout_s: float
    gap_timeout_s: float
    most_in_flight: int
    key_variable: str
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
        endpoint=parse_endpoint(asked.url, token=environment.get(asked.key_variable) or None),
        environment=environment,
        model=asked.model,
        is_chat=asked.is_chat,
        stages=stages,
        sizes=sizes,
        shared_fraction=asked.shared_fraction,
        lines=_lines(asked),
        num_turns=asked.num_turns,
        think_s=asked.think_s,
        extra=extra | dict(asked.body),
        limits=Limits(total_s=asked.timeout_s, gap_s=asked.gap_timeout_s, connect_s=_CONNECT_S),
        most_in_flight=asked.most_in_flight,
        num_warmup=asked.num_warmup,
        seeks_saturation=asked.seeks_saturation,
        budget_s=inf if asked.budget_s is None else asked.budget_s,
        seed=asked.seed,
        slo=parse_slo(asked.slo) if asked.slo is not None else None,
        folder=asked.folder,
        plan=asked.plan,
        described=_described(asked, sizes, extra | dict(asked.body)),
    )


def _check(asked: AskedLoad) -> None:
    kinds = [bool(asked.concurrency), bool(asked.rates), asked.trace is not None]
    if sum(kinds) > 1:
        raise UsageError(
            "a load is one of --concurrency, --rate and --trace",
            where="--concurrency, --rate, --trace",
            remedy="run them one after another",
        )
    if asked.num_turns > 1 and not (
        asked.is_chat and asked.dataset is None and kinds[1:] == [0, 0]
    ):
        raise UsageError(
            "sessions are chats of users in a closed loop",
            where="--turns",
            remedy="leave out --rate, --trace, --dataset and --completions",
        )
    taken = {"model", "messages", "prompt", "stream", "stream_options"} & asked.body.keys()
    if taken:
        raise UsageError(
            f"{', '.join(sorted(taken))} is set by the load itself",
            where="--body",
            remedy="leave it out",
        )


def _stages(asked: AskedLoad, sizes: Sizes, random: Random) -> Iterator[Stage]:
    limited = asked.duration_s or (None if asked.num_requests else _DURATION_S)
    trace = read_trace(asked.trace).load if asked.trace is not None else None
    for repeat in range(asked.repeat):
        if trace is not None:
            yield trace_stage(
                trace, speed=asked.speed, num_requests=asked.num_requests, repeat=repeat
            )
            continue
        for rate in asked.rates:
            if rate * (limited or 0) > _MOST_ARRIVALS:
                raise UsageError(
                    f"{rate * (limited or 0):,.0f} arrivals are more than {_MOST_ARRIVALS:,}",
                    where="--rate",
                    remedy="shorten --duration",
                )
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
        "api": "chat" if asked.is_chat else "completions",
        "body": dict(body),
        "seed": asked.seed,
        "timeout_s": asked.timeout_s,
        "gap_timeout_s": asked.gap_timeout_s,
        "most_in_flight": asked.most_in_flight,
        "against": None if asked.plan_path is None else str(asked.plan_path),
    }
