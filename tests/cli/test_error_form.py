"""One form of failure: three lines on standard error, nothing on standard output, one exit code."""

from pathlib import Path

import pytest

from k31ctl.cli.main import COMMANDS, DEFAULTS, main

EVERY = (*COMMANDS, *(f"bench {name}" for name in DEFAULTS["bench"][1]))
PROFILES = tuple(f"profiles {name}" for name in ("list", "show", "check", "extract"))


def failed(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert [text[:7] for text in lines] == ["error: ", "   at: ", "   do: "], err
    return ended.value.code, lines


@pytest.mark.parametrize("command", [*EVERY, *PROFILES])
def test_an_option_that_a_command_does_not_have(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines = failed(f"{command} --frob", capsys)
    assert (code, lines[0]) == (2, "error: no such option: --frob")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("plan nowhere", 3),
        ("plan --gate zz==1", 2),
        ("serve kimi-k3 --on 8x-h100", 4),
        ("inspect nowhere", 3),
        ("verify nowhere", 3),
        ("fetch nowhere --to x", 3),
        ("lint nowhere.sh", 3),
        ("licence nowhere", 3),
        ("calibrate nowhere", 3),
        ("validate nowhere", 3),
        ("doctor --on nowhere", 3),
        ("tiny x --model nowhere", 2),
        ("bench http://127.0.0.1:9", 6),
        ("bench conformance http://127.0.0.1:9", 6),
        ("bench diff a b", 3),
        ("bench compare a", 3),
        ("profiles list nowhere", 3),
    ],
)
def test_what_cannot_be_done_is_told_alike_with_and_without_json(
    line: str,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    plain, document = failed(line, capsys), failed(f"{line} --json", capsys)
    assert plain == document
    assert plain[0] == code
    assert list(tmp_path.iterdir()) == []
