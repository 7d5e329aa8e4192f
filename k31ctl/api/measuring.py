"""Endpoints, loaded and checked."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from k31ctl.api.given import (
    checked_positive,
    checked_range,
    path_of,
    several,
)

if TYPE_CHECKING:
    from k31ctl.bench.asked import AskedLoad
    from k31ctl.bench.conformance.job import (
        ConformanceEnded,
        ConformanceEvent,
        ConformanceRequest,
    )
    from k31ctl.bench.events import Event, Finished

Ended = TypeVar("Ended")
_ANSWER_TOKENS = 8192


class LoadOptions(TypedDict, total=False):
    """The options of ``k31ctl bench``, under the same names.

    Lengths are in tokens, times in seconds, ``rate`` and ``ramp`` in requests per second.
    """

    concurrency: int | Sequence[int]
    rate: float | Sequence[float]
    ramp: tuple[float, float] | None
    trace: str | Path | None
    speed: float
    burstiness: float
    constant: bool
    duration: float | None
    requests: int | None
    repeat: int
    warmup: int
    saturate: bool
    time_budget: float | None
    slo: str | None
    model: str | None
    prompt_tokens: int | None
    output_tokens: int | None
    spread: float
    shared_prefix: float
    dataset: str | Path | None
    turns: int
    think: float
    images: int
    image_size: tuple[int, int] | None
    completions: bool
    ignore_eos: bool
    reasoning_effort: str | None
    body: Mapping[str, Any]
    seed: int
    timeout: float
    gap_timeout: float
    most_in_flight: int
    http2: bool
    api_key_env: str
    out: str | Path | None


def measure(
    url: str,
    *,
    on_event: "Callable[[Event], None] | None" = None,
    **options: Unpack[LoadOptions],
) -> "Finished":
    """Load an OpenAI-compatible endpoint and return what was measured, stage by stage.

    ``on_event`` is told what happens as it happens. The key is read from the variable
    ``api_key_env`` of the environment, and ``out`` keeps a record. An interrupt ends the load, and
    the answer says so. Raises EndpointError where the endpoint does not answer the first request,
    UsageError for options that contradict, InputError for a file that cannot be read or written.

    >>> for stage in measure("http://127.0.0.1:8000", concurrency=[1, 8], duration=60).stages:
    ...     print(stage.name, stage.output_tok_s, stage.ttft_s)
    """
    from k31ctl.bench.asked import bench_request
    from k31ctl.bench.events import Finished
    from k31ctl.bench.job import Bench

    asked = asked_load(url, **options)
    request = bench_request(asked, environment=os.environ, random=Random(asked.seed))
    bench = Bench(request, clock=time.perf_counter)
    return _end_of(bench.run(), Finished, on_event)


def asked_load(
    url: str,
    *,
    concurrency: int | Sequence[int] = (),
    rate: float | Sequence[float] = (),
    ramp: tuple[float, float] | None = None,
    trace: str | Path | None = None,
    speed: float = 1.0,
    burstiness: float = 1.0,
    constant: bool = False,
    duration: float | None = None,
    requests: int | None = None,
    repeat: int = 1,
    warmup: int = 1,
    saturate: bool = False,
    time_budget: float | None = None,
    slo: str | None = None,
    model: str | None = None,
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    spread: float = 0.0,
    shared_prefix: float = 0.0,
    dataset: str | Path | None = None,
    turns: int = 1,
    think: float = 0.0,
    images: int = 0,
    image_size: tuple[int, int] | None = None,
    completions: bool = False,
    ignore_eos: bool = True,
    reasoning_effort: str | None = None,
    body: Mapping[str, Any] | None = None,
    seed: int = 0,
    timeout: float = 600.0,
    gap_timeout: float = 60.0,
    most_in_flight: int = 8192,
    http2: bool = False,
    api_key_env: str = "K31CTL_API_KEY",
    out: str | Path | None = None,
    plan_path: Path | None = None,
    plan: Mapping[str, Any] | None = None,
) -> "AskedLoad":
    """Return the load that is asked for; ``plan`` is the document at its path, for the record."""
    from k31ctl.bench.asked import AskedLoad

    checked_range("--concurrency", min(several(concurrency), default=None), least=1)
    checked_positive("--rate", min(several(rate), default=None))
    checked_range("--requests", requests, least=1)
    checked_range("--repeat", repeat, least=1, most=100)
    checked_range("--warmup", warmup, least=0)
    checked_range("--turns", turns, least=1)
    checked_range("--images", images, least=0, most=64)
    checked_range("--most-in-flight", most_in_flight, least=1, most=60_000)
    checked_range("--speed", speed, least=0.001)
    checked_range("--burstiness", burstiness, least=0.01, most=1000.0)
    checked_range("--time-budget", time_budget, least=1.0)
    checked_range("--think", think, least=0.0)
    for name, share in (("--spread", spread), ("--shared-prefix", shared_prefix)):
        checked_range(name, share, least=0.0, most=1.0)
    seconds = (("--duration", duration), ("--timeout", timeout), ("--gap-timeout", gap_timeout))
    for name, value in seconds:
        checked_range(name, value, least=0.1)
    return AskedLoad(
        url=url,
        concurrency=several(concurrency),
        rates=several(rate),
        ramp=ramp,
        trace=path_of(trace),
        speed=speed,
        burstiness=None if constant else burstiness,
        duration_s=duration,
        num_requests=requests,
        repeat=repeat,
        num_warmup=warmup,
        seeks_saturation=saturate,
        budget_s=time_budget,
        slo=slo,
        model=model,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        spread_fraction=spread,
        shared_fraction=shared_prefix,
        dataset=path_of(dataset),
        num_turns=turns,
        think_s=think,
        num_images=images,
        image_size=image_size or (1024, 1024),
        is_chat=not completions,
        ignore_eos=ignore_eos,
        reasoning_effort=reasoning_effort,
        body=body or {},
        seed=seed,
        timeout_s=timeout,
        gap_timeout_s=gap_timeout,
        most_in_flight=most_in_flight,
        key_variable=api_key_env,
        is_http2=http2,
        folder=path_of(out),
        plan_path=plan_path,
        plan=plan,
    )


def conformance(
    url: str,
    *,
    model: str | None = None,
    api: str = "auto",
    check: Collection[str] = (),
    skip: Collection[str] = (),
    max_tokens: int | None = None,
    context: int | None = None,
    check_timeout: float = 600.0,
    time_budget: float | None = None,
    http2: bool = False,
    api_key_env: str = "K31CTL_API_KEY",
    on_event: "Callable[[ConformanceEvent], None] | None" = None,
) -> "ConformanceEnded":
    """Return whether an endpoint keeps the contract that this model needs, check by check.

    ``api`` is ``chat``, ``messages`` or ``auto``; ``max_tokens`` and ``context`` are in tokens,
    ``check_timeout`` and ``time_budget`` in seconds. A check that failed is an answer. Raises
    EndpointError where nothing is answered at all, UsageError for an unknown check.

    >>> for result in conformance("http://127.0.0.1:8000").results:
    ...     print(result.id, result.verdict, result.detail)
    """
    from k31ctl.bench.conformance.job import ConformanceEnded
    from k31ctl.bench.conformance.job import conformance as run

    request = conformance_request(
        url,
        model=model,
        api=api,
        check=check,
        skip=skip,
        max_tokens=max_tokens,
        context=context,
        check_timeout=check_timeout,
        time_budget=time_budget,
        http2=http2,
        api_key_env=api_key_env,
    )
    return _end_of(run(request), ConformanceEnded, on_event)


def conformance_request(
    url: str,
    *,
    model: str | None,
    api: str,
    check: Collection[str],
    skip: Collection[str],
    max_tokens: int | None,
    context: int | None,
    check_timeout: float,
    time_budget: float | None,
    http2: bool,
    api_key_env: str,
) -> "ConformanceRequest":
    """Return what is asked of an endpoint; raises UsageError for an unknown check."""
    from k31ctl.bench.conformance.job import ConformanceRequest
    from k31ctl.bench.conformance.registry import chosen
    from k31ctl.bench.endpoint import key_in

    return ConformanceRequest(
        url=url,
        token=key_in(api_key_env, os.environ),
        is_http2=http2,
        environment=os.environ,
        model=model,
        api=api,
        checks=chosen(tuple(check), tuple(skip)),
        check_s=check_timeout,
        budget_s=time_budget,
        answer_tokens=max_tokens or _ANSWER_TOKENS,
        context=context,
    )


def _end_of(
    events: Iterable[Any], kind: type[Ended], on_event: Callable[[Any], None] | None
) -> Ended:
    """Tell every event, and return the one of this kind."""
    ended: Ended | None = None
    for event in events:
        if isinstance(event, kind):
            ended = event
        if on_event is not None:
            on_event(event)
    assert ended is not None
    return ended
