"""Conditions and what came of them as JUnit XML, which CI systems show as tests."""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from k31ctl.values import frozen


@frozen
class Case:
    """One condition; ``failure`` is why it does not hold, ``skipped`` why it was not asked.

    ``kind`` is how CI systems sort failures.
    """

    group: str
    name: str
    seconds: float
    failure: str | None
    skipped: str | None
    detail: str
    kind: str = "k31ctl.gate"


def junit_text(suite: str, cases: Sequence[Case]) -> str:
    """Return a document with one suite. Characters that XML does not have become ``?``."""
    counts = {
        "name": _safe(suite),
        "tests": str(len(cases)),
        "failures": str(sum(case.failure is not None for case in cases)),
        "errors": "0",
        "skipped": str(sum(case.skipped is not None for case in cases)),
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }
    root = ET.Element("testsuites", counts)
    ET.SubElement(root, "testsuite", counts).extend(map(_element, cases))
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _element(case: Case) -> ET.Element:
    found = ET.Element(
        "testcase",
        classname=_safe(case.group),
        name=_safe(case.name),
        time=f"{case.seconds:.3f}",
    )
    if case.failure is not None:
        failure = ET.SubElement(found, "failure", message=_safe(case.failure), type=case.kind)
        failure.text = _safe(case.detail)
    elif case.skipped is not None:
        ET.SubElement(found, "skipped", message=_safe(case.skipped))
    elif case.detail:
        ET.SubElement(found, "system-out").text = _safe(case.detail)
    return found


def _safe(text: str) -> str:
    return "".join(mark if mark.isprintable() or mark in "\n\t" else "?" for mark in text)
