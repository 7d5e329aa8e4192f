"""Checks of an endpoint as text: the answer, a line for each, and evidence for what failed."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from k31ctl.bench.conformance.job import ConformanceEnded
from k31ctl.bench.conformance.verdicts import CheckResult, Evidence, Verdict
from k31ctl.core.finding import Severity
from k31ctl.report.lines import folded, printable

_WORDS: Final = {
    Verdict.PASSED: "passed",
    Verdict.SKIPPED: "skipped",
    Verdict.INCONCLUSIVE: "unclear",
}
_APIS: Final = {"chat": "chat completions", "messages": "Messages"}
_MOST_EVIDENCE: Final = 3
_MOST_SHOWN: Final = 300
_DETAIL: Final = " " * 31


def conformance_text(ended: ConformanceEnded, assumptions: Sequence[str]) -> str:
    """Return the answer for people."""
    lines = [*_head(ended), ""]
    for result in ended.results:
        lines += _row(result)
    for result in ended.results:
        if result.verdict is Verdict.FAILED:
            lines += ["", *_evidence(result)]
    lines += ["", "assumptions"]
    for text in assumptions:
        lines += folded(text, indent="  ")
    return "".join(f"{printable(line)}\n" for line in lines)


def _head(ended: ConformanceEnded) -> Iterator[str]:
    broken = sum(result.breaks_contract for result in ended.results)
    warned = sum(result.verdict is Verdict.FAILED for result in ended.results) - broken
    verdicts = [result.verdict for result in ended.results]
    parts = [f"{verdicts.count(Verdict.PASSED)} passed"]
    parts += [f"{broken} failed"] if broken else []
    parts += [f"{warned} warned"] if warned else []
    for verdict in (Verdict.SKIPPED, Verdict.INCONCLUSIVE):
        if number := verdicts.count(verdict):
            parts.append(f"{number} {_WORDS[verdict]}")
    stopped = ", stopped early" if ended.is_interrupted else ""
    answer = _answer(broken, verdicts)
    yield from folded(
        f"{answer}: of {len(verdicts)} checks {', '.join(parts)}{stopped}.", indent=""
    )
    server = ended.server
    version = f" {server.version}" if server.version else ""
    yield from folded(
        f"{server.model} at {server.url}{version}, asked by {_APIS[ended.api]}", indent=""
    )


def _answer(num_broken: int, verdicts: Sequence[Verdict]) -> str:
    if num_broken:
        return "The contract is broken"
    if Verdict.PASSED not in verdicts:
        return "Nothing is proven"
    is_clear = Verdict.INCONCLUSIVE not in verdicts
    return "The contract is kept" if is_clear else "Nothing found breaks the contract"


def _word(result: CheckResult) -> str:
    if result.verdict is not Verdict.FAILED:
        return _WORDS[result.verdict]
    return "FAILED" if result.breaks_contract else _low(result.severity)


def _low(severity: Severity) -> str:
    return "warning" if severity is Severity.WARNING else "note"


def _row(result: CheckResult) -> list[str]:
    first, *rest = folded(" ".join(result.detail.split()), indent=_DETAIL)
    return [f"  {result.id:<19} {_word(result):<8} {first.strip()}", *rest]


def _evidence(result: CheckResult) -> Iterator[str]:
    yield from folded(f"{result.id}: {result.title}", indent="")
    if result.link:
        yield f"  looks like {result.link}"
    for each in result.evidence[-_MOST_EVIDENCE:]:
        status = "no answer" if each.status is None else str(each.status)
        told = f"{each.purpose}: {each.path}, {status} after {each.seconds:.2f} s"
        yield from folded(told, indent="  ")
        yield from _shown("asked", each.request)
        yield from _shown("came", _came(each))
    left = len(result.evidence) - _MOST_EVIDENCE
    if left > 0:
        yield f"  {left} more in --json"


def _came(evidence: Evidence) -> Any:
    """What was read, or else the end of a stream, or all of anything else."""
    if evidence.read is not None:
        return evidence.read
    response = evidence.response
    return response[-3:] if isinstance(response, list) else response


def _shown(label: str, value: Any) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    cut = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    first, *rest = folded(cut, indent=" " * 10)
    return [f"    {label:<6}{first.strip()}", *rest]
