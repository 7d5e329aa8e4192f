"""Checks of an endpoint as tests.

A check that failed and is no error is a passing case with its words beside it; what could not be
told is a skipped one.
"""

import json

from k31ctl.bench.conformance.job import ConformanceEnded
from k31ctl.bench.conformance.verdicts import CheckResult, Verdict
from k31ctl.report.envelope import plain
from k31ctl.report.junit import Case
from k31ctl.report.lines import printable


def conformance_cases(ended: ConformanceEnded) -> list[Case]:
    """Return a case for each check, in their order."""
    return [_case(result, ended.api) for result in ended.results]


def _case(result: CheckResult, api: str) -> Case:
    detail, failure, skipped = printable(result.detail), None, None
    if result.breaks_contract:
        failure, detail = detail, _evidence(result)
    elif result.verdict is Verdict.FAILED:
        detail = f"{result.severity.value}: {detail}"
    elif result.verdict is not Verdict.PASSED:
        skipped = f"{result.verdict.value}: {detail}"
    return Case(
        group=f"k31ctl.conformance.{api}",
        name=result.id,
        seconds=result.seconds,
        failure=failure,
        skipped=skipped,
        detail=detail,
        kind=result.severity.value,
    )


def _evidence(result: CheckResult) -> str:
    document = {
        "title": result.title,
        "link": result.link,
        "evidence": plain(result.evidence),
    }
    text = json.dumps(document, indent=1, ensure_ascii=True, sort_keys=True)
    return "\n".join(printable(line) for line in text.splitlines())
