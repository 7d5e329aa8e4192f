"""What is only known at run time is never complained about, whatever stands there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from k31ctl.catalog.hardware import load_node
from k31ctl.core.launch_form import find_call
from k31ctl.core.rules import Severity
from k31ctl.serve.lint import Asked, lint
from k31ctl.serve.lint_files import lint_files
from k31ctl.serve.read.found import FoundLaunch, SourceWord
from k31ctl.serve.read.launch_file import launches_in
from k31ctl.serve.read.shell import shell_commands
from k31ctl.serve.read.shell_text import expanded_names
from k31ctl.serve.read.source import read_source
from tests.core.catalogs import STORE

CASES = Path(__file__).parent / "lint_cases"
EXPECTED: list[dict[str, Any]] = yaml.safe_load((CASES / "expected.yaml").read_text())
RICH = (
    "modes-good.sh",
    "nodes-good.sh",
    "sglang-modes-good.sh",
    "tokenspeed-good-2.sh",
    "two-nodes-good.sbatch",
)
WITHIN_QUOTES = [
    ('"${A:-{\\"b\\":true}}"', '{"b":true}'),
    ('"${A:-a \\"b\\"}"', 'a "b"'),
    ("${A:-'{\"b\":1}'}", '{"b":1}'),
    ('${A:-"x y"}', "x y"),
    ("${A:-8}", "8"),
]


def told(found: FoundLaunch, case: dict[str, Any]) -> set[str]:
    """The rules of the errors and warnings about a launch."""
    node = load_node(STORE, case["on"])
    asked = Asked(engine=case["engine"], hardware=case["on"], node=node, nodes=case["nodes"])
    findings = lint(STORE, found, asked, name=case["file"]).findings
    return {each.id for each in findings if each.severity is not Severity.INFO}


def opened(word: SourceWord) -> SourceWord:
    return replace(word, text="$OPEN", resolved=False, certain=False)


def places(found: FoundLaunch) -> list[int]:
    """Where the values of a command stand."""
    call = find_call(found.texts)
    assert call is not None
    texts = enumerate(found.texts)
    return [at for at, text in texts if at >= call.start and not text.startswith("-")]


@pytest.mark.parametrize("case", EXPECTED, ids=lambda case: case["file"])
def test_a_launch_of_which_no_value_is_known_is_told_of_nothing_new(case: dict[str, Any]) -> None:
    for found in launches_in(read_source(CASES / case["file"])):
        values = places(found)
        words = [opened(word) if at in values else word for at, word in enumerate(found.words)]
        unknown = {
            name: replace(each, value="", resolved=False)
            for name, each in found.environment.items()
        }
        blind = replace(found, words=tuple(words), environment=unknown)
        assert told(blind, case) <= told(found, case)


@pytest.mark.parametrize("name", RICH)
def test_one_value_that_is_not_known_is_told_of_nothing_new(name: str) -> None:
    case = next(each for each in EXPECTED if each["file"] == name)
    for found in launches_in(read_source(CASES / name)):
        before = told(found, case)
        for at in places(found):
            words = (*found.words[:at], opened(found.words[at]), *found.words[at + 1 :])
            assert told(replace(found, words=words), case) <= before, found.words[at]


@pytest.mark.parametrize(("written", "value"), WITHIN_QUOTES)
def test_a_default_is_read_as_the_shell_reads_it(written: str, value: str) -> None:
    (command,) = shell_commands(f"vllm serve {written}")
    assert [word.text for word in command.words[2:]] == [value]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('vllm serve "$VLLM_MODEL" -tp ${VLLM_TP:-8}', {"VLLM_MODEL", "VLLM_TP"}),
        ("-tp $$VLLM_TP --port $(SGLANG_PORT)", {"VLLM_TP", "SGLANG_PORT"}),
        ('export SGLANG_MODE="${SGLANG_MODE:-fast}"', set()),
        ("export VLLM_A=1", set()),
        ("python3 -c 'import os; print(os.environ[\"VLLM_B\"])'", {"VLLM_B"}),
    ],
)
def test_a_file_reads_the_variables_that_it_puts_in(text: str, names: set[str]) -> None:
    assert expanded_names(text) == names


@pytest.mark.parametrize(
    ("taken", "is_open"),
    [
        ("source /etc/k3.env", True),
        (". ./env.sh", True),
        ("export $(cat k3.env | xargs)", True),
        ('eval "$(settings)"', True),
        ("source /opt/venv/bin/activate", False),
        ("export A=$B", False),
    ],
)
def test_variables_out_of_what_is_not_read_may_be_any(taken: str, is_open: bool) -> None:
    command = shell_commands(f"{taken}\nvllm serve m")[-1]
    assert command.open_environment is is_open


def test_arguments_that_are_shifted_in_a_loop_are_not_known() -> None:
    text = "while [ $# -gt 0 ]; do shift; done\nvllm serve m $1"
    command = shell_commands(text, arguments=(SourceWord(text="a", line=1),))[-1]
    assert [word.resolved for word in command.words] == [True, True, True, False]


def test_a_change_never_writes_out_what_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    text = (CASES / "open-field.sh").read_text()
    path.write_text(text)
    asked = Asked(engine="vllm@0.33.0", node=load_node(STORE, "8x-b300"), nodes=1)
    (found,) = lint_files(STORE, [str(path)], asked)
    assert found.count(Severity.ERROR) == 1
    assert found.fixed is not None
    assert found.fixed.text == text
