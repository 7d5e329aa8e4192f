"""Answers that go to files, and to standard output: one to each place."""

from pathlib import Path

import pytest

from k31ctl.cli.main import main
from k31ctl.errors import UsageError
from k31ctl.report.targets import Targets, require_apart

LAUNCH = ("--", "vllm", "serve", "moonshotai/Kimi-K3")
NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan", "kimi-k3", "--json", "--csv", "-"),
        ("plan", "kimi-k3", "--csv", "one", "--markdown", "one"),
        ("lint", "--json", "--markdown", "-", *LAUNCH),
        ("lint", "--format", "sarif", "--markdown", "-", *LAUNCH),
        ("doctor", "--only", "gpu-count", "--json", "--markdown", "-"),
        ("smoke", "nowhere", "--json", "--junit", "-"),
        ("bench", NOWHERE, "--json", "--junit", "-"),
        ("bench", "conformance", NOWHERE, "--json", "--junit", "-"),
    ],
    ids=" ".join,
)
def test_two_answers_to_one_place_are_refused_before_any_work(
    arguments: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    out, err = capsys.readouterr()
    assert (ended.value.code, out, list(tmp_path.iterdir())) == (2, "", [])
    assert err.startswith("error: two answers cannot go to one place\n")


def test_places_of_their_own_are_all_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    targets = Targets(csv=tmp_path / "a", junit=Path("-"))
    targets.require_one(as_json=False)
    assert not targets.write({"csv": lambda: "one", "junit": lambda: "two", "html": lambda: "no"})
    assert ((tmp_path / "a").read_text(), capsys.readouterr().out) == ("one", "two")
    assert Targets(html=tmp_path / "b").is_free
    with pytest.raises(UsageError):
        require_apart(None, Path("x"), None, Path("x"), as_json=False)
