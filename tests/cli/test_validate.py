"""k31ctl validate, as a process."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

ENTRY = (
    "{value: 0.01, spread: 0.1, prior: 0.01, prior_spread: 0.1, why: wrong, source: nobody, "
    "basis: assumed}"
)
ROW = "{id: a run, src: someone, hw: 8x B300, layout: TP8, isl: 1000, osl: 500, c: 1, out_tok_s: 0}"


def test_the_packaged_parameters_pass(k31ctl: Run) -> None:
    done = k31ctl("validate")
    assert (done.returncode, done.stderr) == (0, "")
    assert "fitted to all: 41 figures" in done.stdout
    assert "h200-pp2-c1 over h200-tp16-c1: measured 1.46" in done.stdout


def test_the_document_has_no_warning_where_the_targets_are_met(k31ctl: Run) -> None:
    found = json.loads(k31ctl("validate", "--json").stdout)
    assert found["warnings"] == []
    assert found["inputs"]["table"] == "kimi-k3"


def test_a_wrong_calibration_fails_and_names_the_targets(k31ctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(f"layer_overhead_s: {{default: {ENTRY}, sm_90: {ENTRY}}}")
    done = k31ctl("validate", "--calibration", str(path))
    assert done.returncode == 4
    assert "mean error" in done.stderr
    assert "is above 12%" in done.stderr
    assert "worst error" in done.stderr


@pytest.mark.parametrize(
    ("text", "what"),
    [("rows: []", "holds no measurements"), (f"- {ROW}", "out_tok_s must be above 0")],
)
def test_a_bad_table_is_an_input_error_and_no_traceback(
    k31ctl: Run, tmp_path: Path, text: str, what: str
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    done = k31ctl("validate", str(path))
    assert (done.returncode, done.stdout) == (3, "")
    assert what in done.stderr
    assert str(path) in done.stderr
    assert len(done.stderr.splitlines()) == 3


def test_an_unknown_table_is_an_input_error(k31ctl: Run) -> None:
    done = k31ctl("validate", "kimi-k4")
    assert (done.returncode, done.stdout) == (3, "")
    assert "no table and no file is called 'kimi-k4'" in done.stderr


def test_a_fit_is_a_calibration_that_validates(k31ctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "fitted.yaml"
    assert k31ctl("validate", "--fit", str(path)).returncode == 0
    assert k31ctl("validate", "--calibration", str(path)).returncode == 0
