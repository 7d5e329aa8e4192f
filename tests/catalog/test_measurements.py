"""Tables of measurements: rows that are runs of the model, and rows that cannot be."""

from pathlib import Path

import pytest

from k31ctl.catalog.measurements import load_trials, other_tables, trials_in
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Store, default_folders
from k31ctl.errors import ProfileError

STORE = Store(default_folders())
SPEED = load_speed(STORE)
ROW = (
    "{id: a run, src: someone, hw: 16x H200, engine: vllm, layout: TP8xPP2, moe: marlin, "
    "isl: 1000, osl: 500, c: 4, out_tok_s: 50}"
)


def refusal(text: str) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        trials_in(STORE, text, SPEED, where="mine.yaml")
    assert caught.value.where.startswith("mine.yaml")
    assert caught.value.remedy
    return caught.value


def test_a_row_says_what_was_run() -> None:
    (trial,), skipped = trials_in(STORE, f"- {ROW}", SPEED, where="mine.yaml")
    run = trial.measurement
    assert (run.hardware, run.num_nodes, run.layout) == ("8x-h200", 2, "TP8xPP2")
    assert (run.workload.prompt_tokens, run.workload.output_tokens) == (1000, 500)
    assert (run.workload.concurrency, run.measured) == (4, {"out_tok_s": 50.0})
    assert trial.case.kernel == "marlin-w4a16"
    assert skipped == ()


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("H200", "H999", "no hardware profile has the GPU of '16x H999'"),
        ("out_tok_s: 50", "out_tok_s: 50, tokens: 9", "unknown key tokens"),
        ("out_tok_s: 50", "out_tok_s: -50", "out_tok_s must be above 0"),
        ("out_tok_s: 50", "out_tok_s: 0", "out_tok_s must be above 0"),
        ("out_tok_s: 50", "out_tok_s: .nan", ".nan is not a finite number"),
        ("out_tok_s: 50", "out_tok_s: .inf", ".inf is not a finite number"),
        ("out_tok_s: 50", "out_tok_s: fast", "out_tok_s: 'fast' is not"),
        ("isl: 1000", "isl: 0", "isl must be above 0"),
        ("osl: 500", "osl: -1", "osl must be above 0"),
        ("c: 4", "c: 0", "c must be above 0"),
        ("c: 4", "context: 0", "context must be above 0"),
        ("c: 4", "accepted: 0.5", "accepted must be at least 1"),
        ("moe: marlin", "moe: magic", "moe must be one of marlin"),
        ("engine: vllm", "engine: magic", "engine 'magic' is none that can be predicted"),
        ("isl: 1000", "kv: fp7", "kv: 'fp7' is not one of bf16"),
        ("isl: 1000", "spec: magic", "no draft profile fits spec 'magic'"),
        ("src: someone, ", "", "missing key src"),
    ],
)
def test_a_row_that_cannot_be_is_refused_by_its_key(old: str, new: str, what: str) -> None:
    assert what in refusal(f"- {ROW.replace(old, new)}").what


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "0 documents"),
        ("[]", "holds no measurements"),
        ("rows: []", "holds no measurements"),
        ("rows: 5", "holds no measurements"),
        ("5", "holds no measurements"),
        ("- 5", "not a mapping"),
    ],
)
def test_a_table_without_rows_is_refused(text: str, what: str) -> None:
    assert what in refusal(text).what


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("out_tok_s: 50", "tokens: 50", "states no quantity that the model has"),
        ("TP8xPP2", "null", "one part or one link"),
        ("TP8xPP2", "TP7", "TP 7 does not divide"),
    ],
)
def test_a_row_that_is_no_run_is_skipped_and_a_table_of_such_is_refused(
    old: str, new: str, why: str
) -> None:
    other = ROW.replace(old, new)
    trials, (skipped,) = trials_in(STORE, f"- {ROW}\n- {other}", SPEED, where="mine.yaml")
    assert len(trials) == 1
    assert why in skipped.why
    assert why in refusal(f"- {other}").what


def test_an_unknown_table_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ProfileError, match="no table and no file is called 'kimi'") as caught:
        load_trials(STORE, "kimi", SPEED)
    assert "kimi-k3" in caught.value.remedy


def test_a_file_is_read_as_a_table(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"- {ROW}")
    assert len(load_trials(STORE, str(tmp_path / "mine.yaml"), SPEED)[0]) == 1


def test_other_tables_are_all_but_one() -> None:
    assert other_tables(STORE, "kimi-k3") == ["kimi-k3-more"]
