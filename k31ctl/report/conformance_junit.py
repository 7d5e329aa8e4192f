"""Checks of an endpoint as JUnit XML, as continuous integration shows them.

A check that failed and is no error is a passing case with its words beside it; what could not be
told is a skipped one.
"""

import json
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from k31ctl.bench.conformance.job import ConformanceEnded
from k31ctl.bench.conformance.verdicts import CheckResult, Verdict
from k31ctl.report.envelope import plain
from k31ctl.report.lines import printable


def junit_text(ended: ConformanceEnded) -> str:
    """Return the document."""
    results = ended.results
    failures = sum(result.breaks_contract for result in results)
    left_out = sum(result.verdict in (Verdict.SKIPPED, Verdict.INCONCLUSIVE) for result in results)
    counts = {
        "tests": str(len(results)),
        "failures": str(failures),
        "errors": "0",
        "skipped": str(left_out),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }
    suites = Element("testsuites", counts)
    name = printable(f"conformance of {ended.server.model}, {ended.api}")
    suite = SubElement(suites, "testsuite", {"name": name, **counts})
    for result in results:
        _case(suite, result, ended.api)
    indent(suites)
    text: str = tostring(suites, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _case(suite: Element, result: CheckResult, api: str) -> None:
    case = SubElement(
        suite,
        "testcase",
        {
            "classname": f"k31ctl.conformance.{api}",
            "name": result.id,
            "time": f"{result.seconds:.3f}",
        },
    )
    detail = printable(result.detail)
    if result.breaks_contract:
        failure = SubElement(case, "failure", {"message": detail, "type": result.severity.value})
        failure.text = _evidence(result)
    elif result.verdict is Verdict.FAILED:
        SubElement(case, "system-out").text = f"{result.severity.value}: {detail}"
    elif result.verdict is not Verdict.PASSED:
        SubElement(case, "skipped", {"message": f"{result.verdict.value}: {detail}"})
    else:
        SubElement(case, "system-out").text = detail


def _evidence(result: CheckResult) -> str:
    document = {
        "title": result.title,
        "link": result.link,
        "evidence": plain(result.evidence),
    }
    text = json.dumps(document, indent=1, ensure_ascii=True, sort_keys=True)
    return "\n".join(printable(line) for line in text.splitlines())
