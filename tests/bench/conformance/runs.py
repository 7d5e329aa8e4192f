"""Conformance runs against a service of a test."""

import os
from collections.abc import Sequence
from typing import Any

from k31ctl.bench.conformance.job import (
    CheckEnded,
    ConformanceEnded,
    ConformanceRequest,
    conformance,
)
from k31ctl.bench.conformance.registry import chosen
from k31ctl.bench.conformance.verdicts import CheckResult, Verdict
from tests.bench.conformance.pretend_service import Service, serving

BOTH = ("/v1/chat/completions", "/v1/messages")


def ended(url: str, *, only: Sequence[str] = (), **asked: Any) -> ConformanceEnded:
    """The end of a run against an address."""
    given: dict[str, Any] = {
        "token": None,
        "is_http2": False,
        "model": None,
        "api": "chat",
        "check_s": 60.0,
        "budget_s": 600.0,
        "answer_tokens": 2000,
        "context": None,
        **asked,
    }
    request = ConformanceRequest(url=url, environment=os.environ, checks=chosen(only, ()), **given)
    *told, end = conformance(request)
    assert isinstance(end, ConformanceEnded)
    assert [e.result for e in told if isinstance(e, CheckEnded)] == list(end.results)
    return end


def results(service: Service, **asked: Any) -> dict[str, CheckResult]:
    """What each check came to, by its id."""
    with serving(service, paths=BOTH) as url:
        return {result.id: result for result in ended(url, **asked).results}


def failing(found: dict[str, CheckResult]) -> set[str]:
    return {name for name, result in found.items() if result.verdict is Verdict.FAILED}
