"""What an endpoint keeps of the contract, as people and pipelines read it."""

import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from k31ctl.bench.conformance.job import (
    CheckStarted,
    ConformanceEnded,
    ConformanceEvent,
    ConformanceRequest,
)
from k31ctl.bench.conformance.verdicts import CheckResult, Verdict
from k31ctl.core.gates import Gate, require_all, require_names
from k31ctl.errors import RefusedError
from k31ctl.report.conformance_cases import conformance_cases
from k31ctl.report.conformance_text import conformance_text
from k31ctl.report.envelope import envelope, plain
from k31ctl.report.junit import junit_text
from k31ctl.report.targets import Targets
from k31ctl.units import counted

_EVERY_S: Final = 10.0


def show_conformance(
    events: Iterator[ConformanceEvent],
    *,
    request: ConformanceRequest,
    targets: Targets,
    gates: Sequence[Gate],
    as_json: bool,
) -> None:
    """Show the checks; the answer goes to standard output, how far they are to a terminal.

    Raises GateError for the first condition that is not met, RefusedError where the contract is
    broken, and KeyboardInterrupt where it was stopped, each after the answer.
    """
    targets.require_one(as_json=as_json)
    ended = _told(events, is_watched=sys.stderr.isatty() or not as_json)
    result = conformance_result(ended)
    require_names(gates, result)
    suite = f"conformance of {ended.server.model}, {ended.api}"
    try:
        targets.write({"junit": lambda: junit_text(suite, conformance_cases(ended))})
    finally:  # a file that cannot be written loses nothing of what was found
        if as_json:
            sys.stdout.write(
                envelope(
                    "conformance",
                    inputs=_inputs(request, gates),
                    result=result,
                    assumptions=_assumptions(ended),
                    warnings=[f"{r.id}: {r.detail}" for r in ended.results if _is_warning(r)],
                )
            )
        elif targets.is_free:
            sys.stdout.write(conformance_text(ended, _assumptions(ended)))
    if ended.is_interrupted:
        raise KeyboardInterrupt
    _require(ended, result, gates)


def conformance_result(ended: ConformanceEnded) -> dict[str, Any]:
    """Return ``result`` of the document."""
    verdicts = [result.verdict for result in ended.results]
    num_failed = sum(result.breaks_contract for result in ended.results)
    return {
        "kept": num_failed == 0 and Verdict.PASSED in verdicts and not ended.is_interrupted,
        "checks": len(verdicts),
        "passed": verdicts.count(Verdict.PASSED),
        "failed": num_failed,
        "warnings": sum(_is_warning(result) for result in ended.results),
        "skipped": verdicts.count(Verdict.SKIPPED),
        "inconclusive": verdicts.count(Verdict.INCONCLUSIVE),
        "is_interrupted": ended.is_interrupted,
        "api": ended.api,
        "server": plain(ended.server),
        "results": plain(ended.results),
    }


def _told(events: Iterator[ConformanceEvent], *, is_watched: bool) -> ConformanceEnded:
    """The end; until then a terminal has one line that is renewed, a log one now and then."""
    is_terminal, last_s = sys.stderr.isatty(), time.monotonic()
    ended: ConformanceEnded | None = None
    for event in events:
        if isinstance(event, ConformanceEnded):
            ended = event
        elif is_watched and isinstance(event, CheckStarted):
            text = f"check {event.number} of {event.num_checks}: {event.id}"
            if is_terminal:
                sys.stderr.write(f"\r\x1b[K{text}")
            elif time.monotonic() - last_s >= _EVERY_S:
                last_s = time.monotonic()
                sys.stderr.write(f"{text}\n")
            sys.stderr.flush()
    if is_terminal:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
    assert ended is not None
    return ended


def _is_warning(result: CheckResult) -> bool:
    return result.verdict is Verdict.FAILED and not result.breaks_contract


def _inputs(request: ConformanceRequest, gates: Sequence[Gate]) -> dict[str, Any]:
    return {
        "url": request.url,
        "model": request.model,
        "api": request.api,
        "checks": [check.id for check in request.checks],
        "check_timeout_s": request.check_s,
        "time_budget_s": request.budget_s,
        "max_tokens": request.answer_tokens,
        "context": request.context,
        "gates": [gate.text for gate in gates],
    }


def _assumptions(ended: ConformanceEnded) -> list[str]:
    carried = ", ".join(f"{name} {value}" for name, value in ended.common.items())
    counted_by = "its own /tokenize" if ended.has_tokenizer else "the length of their text"
    context = f"{ended.context:,} tokens" if ended.context else "not known"
    return [
        f"questions carry {carried or 'nothing but a limit'}",
        f"tokens of rendered prompts are counted by {counted_by}",
        f"the longest context is {context}",
        "the chat format of Kimi K3.1 is taken to be that of K3, as nothing public says otherwise",
    ]


def _require(ended: ConformanceEnded, result: dict[str, Any], gates: Sequence[Gate]) -> None:
    require_all(gates, result, where="--gate", remedy="see the answer above")
    broken = [each.id for each in ended.results if each.breaks_contract]
    if broken:
        raise RefusedError(
            f"the contract is broken: {counted(len(broken), 'check')} failed, "
            f"{', '.join(broken[:6])}",
            where=ended.server.url,
            remedy="mend what the evidence shows; --json has all of it; --skip ID leaves one out",
            rule="conformance",
        )
