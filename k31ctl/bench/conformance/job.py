"""A run of checks against one endpoint, as a stream of events."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Final

from k31ctl.bench.check import Line, TokenCounter, look, unreachable
from k31ctl.bench.conformance.chat_api import ChatApi
from k31ctl.bench.conformance.messages_api import MessagesApi
from k31ctl.bench.conformance.probe import Probe
from k31ctl.bench.conformance.questions import FEW_TOKENS, asked
from k31ctl.bench.conformance.registry import Check
from k31ctl.bench.conformance.reply import OK
from k31ctl.bench.conformance.target import Settings, Target
from k31ctl.bench.conformance.verdicts import (
    CheckResult,
    JudgedError,
    Outcome,
    Verdict,
    failed,
    inconclusive,
    skipped,
)
from k31ctl.bench.endpoint import Endpoint, parse_endpoint, tls_context
from k31ctl.bench.events import Server
from k31ctl.bench.interrupts import Interrupt, noted_interrupt, raised_interrupt
from k31ctl.bench.trouble import Trouble, TroubleError
from k31ctl.errors import EndpointError
from k31ctl.values import frozen

APIS: Final[dict[str, type[ChatApi] | type[MessagesApi]]] = {
    "chat": ChatApi,
    "messages": MessagesApi,
}
_VERSION: Final = ("anthropic-version", "2023-06-01")
_NOT_THERE: Final = (404, 405)
_NO_KEY: Final = (401, 403)
# What makes an answer short, and the same each time where that is offered, as far as it is taken.
# The temperature stays the model's own: some refuse any other, and greedy reasoning may go round.
_COMMON: Final[tuple[dict[str, Any], ...]] = (
    {"reasoning_effort": "low", "seed": 7},
    {"reasoning_effort": "low"},
    {},
)


@frozen
class ConformanceRequest:
    """What is asked of which endpoint.

    ``api`` is ``chat``, ``messages`` or, to see what is there, ``auto``. A check may take
    ``check_s``; none begins after ``budget_s``.
    """

    url: str
    token: str | None
    is_http2: bool
    environment: Mapping[str, str]
    model: str | None
    api: str
    checks: tuple[Check, ...]
    check_s: float
    budget_s: float | None
    answer_tokens: int
    context: int | None


@frozen
class CheckStarted:
    """A check begins."""

    id: str
    number: int
    num_checks: int


@frozen
class CheckEnded:
    """What a check came to."""

    result: CheckResult


@frozen
class ConformanceEnded:
    """The end; ``is_interrupted`` says that it came early."""

    server: Server
    api: str
    common: Mapping[str, Any]
    context: int | None
    has_tokenizer: bool
    results: tuple[CheckResult, ...]
    is_interrupted: bool


ConformanceEvent = CheckStarted | CheckEnded | ConformanceEnded


def conformance(request: ConformanceRequest) -> Iterator[ConformanceEvent]:
    """Run the checks one after another; raises EndpointError where nothing is answered at all."""
    target = _target(request)
    begun_s = time.monotonic()
    budget_s = inf if request.budget_s is None else request.budget_s
    results: list[CheckResult] = []
    with noted_interrupt() as interrupt:
        for number, check in enumerate(request.checks, start=1):
            if interrupt.is_set:
                break
            yield CheckStarted(id=check.id, number=number, num_checks=len(request.checks))
            left_s = budget_s - (time.monotonic() - begun_s)
            try:
                with raised_interrupt():
                    results.append(_run(check, target, min(request.check_s, left_s)))
            except KeyboardInterrupt:
                interrupt.is_set = True
                break
            yield CheckEnded(result=results[-1])
    yield _ended(target, results, interrupt)


def _ended(
    target: Target, results: Sequence[CheckResult], interrupt: Interrupt
) -> ConformanceEnded:
    return ConformanceEnded(
        server=target.server,
        api=target.api.name,
        common=target.settings.common,
        context=target.settings.context,
        has_tokenizer=target.counter.is_there,
        results=tuple(results),
        is_interrupted=interrupt.is_set,
    )


def _run(check: Check, target: Target, within_s: float) -> CheckResult:
    begun_s = time.monotonic()
    probe = Probe(target, ends_s=begun_s + within_s)
    outcome = _outcome(check, target, probe, within_s)
    link = outcome.link if outcome.verdict is Verdict.FAILED else ""
    return CheckResult(
        id=check.id,
        title=check.title,
        severity=check.severity,
        verdict=outcome.verdict,
        detail=target.redaction.short(outcome.detail),
        link=link,
        seconds=time.monotonic() - begun_s,
        evidence=tuple(probe.evidence),
    )


def _outcome(check: Check, target: Target, probe: Probe, within_s: float) -> Outcome:
    if why := _why_not(check, target, within_s):
        return skipped(why)
    try:
        return check.run(probe)
    except JudgedError as judged:
        return judged.outcome
    except TroubleError as trouble:
        if trouble.kind is Trouble.TIMEOUT:
            return inconclusive(f"not done within {within_s:.3g} s; raise --check-timeout")
        if trouble.kind is Trouble.CONNECT:
            target.is_gone = _is_gone(target.line)
        return failed(f"{trouble.kind}: {trouble.detail}")


def _why_not(check: Check, target: Target, within_s: float) -> str:
    """Why a check is left out, empty where it is not."""
    if target.api.name not in check.apis:
        return "Messages has no field for it"
    if target.is_gone:
        return "the endpoint can no longer be reached"
    return "the time budget was used up before it" if within_s <= 0 else ""


def _is_gone(line: Line) -> bool:
    """Whether nothing answers any more; one connection may fail and others not."""
    try:
        line.dial()
    except EndpointError:
        return True
    return False


def _target(request: ConformanceRequest) -> Target:
    """Find the API, the model and what every question can carry; raises EndpointError."""
    endpoint = parse_endpoint(request.url, token=request.token, is_http2=request.is_http2)
    is_http2 = endpoint.is_http2
    context = tls_context(request.environment, is_http2=is_http2) if endpoint.is_tls else None
    reason = ""
    for name in _api_names(request):
        line = Line(_with_headers(endpoint, name), context)
        server = look(line, request.model)
        api = APIS[name]()
        settings = Settings(
            common={},
            answer_tokens=request.answer_tokens,
            context=request.context or server.max_model_len,
        )
        target = Target(line, api, server, settings, TokenCounter(line, server.model))
        common, reason = _common(target, request.check_s)
        if common is not None:
            target.settings = replace(settings, common=common)
            return target
    raise EndpointError(
        f"no question is answered: {target.redaction.short(reason)}",
        where=request.url,
        remedy="mend what the server says, or name the kind of API with --api",
    )


def _api_names(request: ConformanceRequest) -> tuple[str, ...]:
    if request.api != "auto":
        return (request.api,)
    if request.url.rstrip("/").endswith("/messages"):
        return ("messages",)
    return ("chat", "messages")


def _with_headers(endpoint: Endpoint, api: str) -> Endpoint:
    if api != "messages":
        return endpoint
    keys = (("x-api-key", endpoint.token),) if endpoint.token else ()
    return replace(endpoint, headers=(_VERSION, *keys))


def _common(target: Target, within_s: float) -> tuple[dict[str, Any] | None, str]:
    """The first of ``_COMMON`` that is taken, or None and why the last was not."""
    reason = ""
    for common in _COMMON:
        probe = Probe(target, ends_s=time.monotonic() + within_s)
        try:
            reply = probe.try_ask(
                "a first question", asked("Hello.", max_tokens=FEW_TOKENS, **common)
            )
        except TroubleError as trouble:
            raise unreachable(target.line.endpoint, trouble) from None
        if reply.status == OK and reply.error is None:
            return common, ""
        reason = reply.refusal
        if reply.status in _NO_KEY:
            raise EndpointError(
                f"the endpoint refuses us: {target.redaction.short(reason)}",
                where=target.line.endpoint.url,
                remedy="put the key into the variable that --api-key-env names",
            )
        if reply.status in _NOT_THERE or not reply.is_refused:
            break
    return None, reason
