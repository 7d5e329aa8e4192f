"""A smoke test as text and as JUnit's XML."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.ladder import Measure, Status, Step
from k31ctl.errors import RefusedError
from k31ctl.report.junit import junit_text
from k31ctl.report.smoke import require_green, show_smoke, smoke_cases
from k31ctl.report.targets import Targets

GOOD = Step(
    id="blocks",
    name="every block",
    status=Status.PASS,
    seconds=1.25,
    detail="8 comparisons",
    measures=tuple(Measure(name=f"case {n}", value=n / 10, at_most=1.0) for n in range(8)),
)
BAD = Step(
    id="layers",
    name="layers",
    status=Status.FAIL,
    seconds=0.5,
    detail="layer 2: no finite number, outside its bound",
    measures=(
        Measure(name="layer 1", value=1e-6, at_most=5e-5),
        Measure(name="layer 2", value=None, at_most=5e-5),
    ),
    notes=("1 choice too near to call, left out",),
)
LEFT = Step(id="all", name="all", status=Status.SKIP, seconds=0.0, detail="not run: layers failed")


def test_a_failed_step_shows_every_number_and_marks_the_wrong_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_smoke([GOOD, BAD, LEFT], title="tiny", inputs={}, as_json=False, targets=Targets())
    lines = capsys.readouterr().out.splitlines()
    assert "          case 7                                   0.7  (at most 1)" in lines
    assert "          and 2 more, further from their bounds" in lines
    assert "          layer 1                                  1e-06  (at most 5e-05)" in lines
    marked = [line for line in lines if line.startswith("     red  ")]
    assert marked == [
        "     red  layer 2                                  no finite number  (at most 5e-05)"
    ]
    assert lines[-1] == "1 step green, 1 step red, 1 step skipped, in 1.8 s"


def test_a_failure_is_refused_with_the_first_step_that_failed() -> None:
    with pytest.raises(RefusedError, match="layers failed: layer 2") as refused:
        require_green((GOOD, BAD, LEFT), title="tiny")
    assert refused.value.exit_code == 4
    with pytest.raises(RefusedError, match="no step could run"):
        require_green((LEFT,), title="tiny")


@given(st.text(), st.text())
def test_junit_can_be_read_whatever_a_step_says(detail: str, note: str) -> None:
    said = Step(
        id="files", name="files", status=Status.FAIL, seconds=2.0, detail=detail, notes=(note,)
    )
    (suite,) = ET.fromstring(junit_text("smoke", smoke_cases((GOOD, said, LEFT), title=detail)))
    assert [case.get("name") for case in suite] == ["blocks", "files", "all"]
    assert [len(case) for case in suite] == [1, 1, 1]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
