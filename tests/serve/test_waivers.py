"""Comments and options that waive a finding, and what is told of those that do not."""

import json
from pathlib import Path

import pytest

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.hardware import load_node
from k31ctl.errors import UsageError
from k31ctl.report.lint_formats import github_lines, gitlab_document, markdown_text, sarif_document
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import LintedFile, lint_files

STORE = Store(default_folders(()))
NODE = load_node(STORE, "8x-b300")
TRUST, PARSER = "trust-remote-code-missing", "tool-parser-wrong"
LINE_ENDS = "script-line-ends"
SERVE = (
    "vllm serve moonshotai/Kimi-K3 -tp 8 --enable-auto-tool-choice --reasoning-parser kimi_k3 "
    "--tool-call-parser kimi_k2"
)
LONG = SERVE.replace(" --", " \\\n--")
COMPOSE = """services:
  kimi:
    image: vllm/vllm-openai:v0.33.0
    ipc: host
    gpus: all
    # k31ctl: ignore trust-remote-code-missing the image sets it
    command:
    - --model
    - moonshotai/Kimi-K3
    - --tool-call-parser  # k31ctl: ignore tool-parser-wrong our own template
    - kimi_k2
    - --enable-auto-tool-choice
    - --reasoning-parser
    - kimi_k3
    - -tp
    - "8"
"""


def linted(
    folder: Path, text: str, *ignore: str, name: str = "launch.sh", only: bool = False
) -> LintedFile:
    path = folder / name
    path.write_text(text)
    asked = Asked(
        engine="vllm@0.33.0",
        hardware="8x-b300",
        node=NODE,
        ignore=ignore,
        only_launches=only,
    )
    (file,) = lint_files(STORE, [str(path)], asked)
    return file


def told(file: LintedFile) -> dict[str, int]:
    """The rules that count, with the lines that they are told for."""
    return {f.id: int(f.where.rpartition(":")[2]) for f in file.findings}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (SERVE, {TRUST: 1, PARSER: 1}),
        (f"{SERVE}  # k31ctl: ignore {PARSER} our own template", {TRUST: 1}),
        (f"# k31ctl: ignore {PARSER},{TRUST} try-out\n\n# why\n{SERVE}", {}),
        (f"# k31ctl: ignore {PARSER} x\n{LONG}", {TRUST: 2}),
        (f"# k31ctl: ignore-file {TRUST} x\ndate\n{SERVE}", {PARSER: 3}),
        (f"date\n{SERVE}\n# k31ctl: ignore-file {PARSER} {TRUST}", {TRUST: 2}),
        (
            f"# k31ctl: ignore {PARSER} x\nif true; then\n\n  {SERVE}\nfi",
            {TRUST: 4},
        ),
        (
            f"# k31ctl: ignore {PARSER} x\ndate\n{SERVE}",
            {TRUST: 3, PARSER: 3, "waiver-unused": 1},
        ),
        (f"{SERVE}\n# k31ctl: ignore {TRUST} x", {TRUST: 1, PARSER: 1, "waiver-unused": 2}),
        (f"{SERVE} # k31ctl: ignore {PARSER}\ta reason\r", {TRUST: 1, LINE_ENDS: 1}),
        (
            f"\u2028\n{SERVE} # k31ctl: ignore {PARSER}\r",
            {TRUST: 2, "waiver-without-reason": 2, LINE_ENDS: 2},
        ),
        (f"{SERVE} # k31ctl: ignore {PARSER}", {TRUST: 1, "waiver-without-reason": 1}),
        (f"{SERVE} # k31ctl: ignore", {TRUST: 1, PARSER: 1, "waiver-unknown-rule": 1}),
        (f"{SERVE} # k31ctl: ignore {PARSER}x y", {TRUST: 1, PARSER: 1, "waiver-unknown-rule": 1}),
        (f"echo 'a#k31ctl: ignore {PARSER} x'\n{SERVE}", {TRUST: 2, PARSER: 2}),
    ],
)
def test_a_comment_waives_its_rules_in_its_lines(
    tmp_path: Path, text: str, left: dict[str, int]
) -> None:
    assert told(linted(tmp_path, f"{text}\n")) == left


def test_a_comment_above_a_list_of_a_manifest_waives_in_all_of_it(tmp_path: Path) -> None:
    text = COMPOSE.replace("    - ", "      - ")
    found = linted(tmp_path, text, name="compose.yaml")
    assert (told(found), len(found.waived)) == ({}, 2)
    flat = linted(tmp_path, COMPOSE, name="compose.yaml")
    assert (told(flat), len(flat.waived)) == ({}, 2)


def test_what_is_waived_is_not_mended(tmp_path: Path) -> None:
    found = linted(tmp_path, f"# k31ctl: ignore {PARSER} ours\n{SERVE}\n")
    assert found.fixed is not None
    assert (found.fixed.num_made, "kimi_k2 --trust-remote-code" in found.fixed.text) == (1, True)


def test_an_option_waives_everywhere_and_its_rule_has_to_exist(tmp_path: Path) -> None:
    found = linted(tmp_path, SERVE, TRUST, PARSER)
    assert (told(found), {w.reason for w in found.waived}) == ({}, {"--ignore"})
    with pytest.raises(UsageError, match="no rule is called 'tool-parser'") as refused:
        linted(tmp_path, SERVE, "tool-parser")
    assert f"did you mean {PARSER}?" in refused.value.remedy


def test_other_programs_are_not_told_what_is_waived_and_markdown_says_why(tmp_path: Path) -> None:
    files = [linted(tmp_path, f"{SERVE}  # k31ctl: ignore {PARSER} our own | template")]
    (row,) = [row for row in markdown_text(files).splitlines() if PARSER in row]
    assert row.endswith(f"| our own \\| template | `{PARSER}` |")
    for text in (sarif_document(files), "\n".join(github_lines(files)), gitlab_document(files)):
        assert TRUST in text
        assert PARSER not in text


def test_gitlab_gets_an_issue_for_each_finding_that_stays_itself_when_it_moves(
    tmp_path: Path,
) -> None:
    first = json.loads(gitlab_document([linted(tmp_path, f"{SERVE}\n{SERVE}\n")]))
    moved = json.loads(gitlab_document([linted(tmp_path, f"\n\n{SERVE}\n\n{SERVE}\n")]))
    prints = [issue["fingerprint"] for issue in first]
    assert (len(set(prints)), prints) == (4, [issue["fingerprint"] for issue in moved])
    assert [issue["location"]["lines"]["begin"] for issue in moved] == [3, 3, 5, 5]
    assert {issue["severity"] for issue in first} == {"major"}
    assert {issue["check_name"] for issue in first} == {TRUST, PARSER}


def test_files_that_start_nothing_are_passed_over_where_that_is_asked_for(tmp_path: Path) -> None:
    names = {
        "a.sh": "date\n",
        "b.yaml": "{{ .Values.x }}: [\n",
        "node.sh": SERVE,
        "job.sbatch": "#SBATCH --nodes=2\nsrun bash node.sh\n",
    }
    for name, text in names.items():
        (tmp_path / name).write_text(text)
    asked = Asked(node=NODE, only_launches=True)
    given = [str(tmp_path / name) for name in names]
    found = lint_files(STORE, given, asked)
    assert found == lint_files(STORE, given[2:], Asked(node=NODE))
    assert [launch.context.nodes for file in found for launch in file.launches] == [2]
    assert lint_files(STORE, given[:2], asked) == ()
    (tmp_path / "b.yaml").write_text("command: [vllm\n")
    unread = [file.name for file in lint_files(STORE, given, asked) if file.failure is not None]
    assert unread == [given[1]]
