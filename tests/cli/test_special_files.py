"""Pipes that nobody writes to and devices without an end, where a file belongs."""

import os
from pathlib import Path

import pytest

from k31ctl.bench.past import read_page
from k31ctl.cli.main import main
from tests.fuzz.real_documents import record

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    "command",
    [
        "bench diff /dev/zero /dev/zero",
        "bench diff {pipe} {pipe}",
        "bench report {pipe} --html {new}",
        "bench compare {pipe}",
        f"bench {NOBODY} --baseline {{pipe}}",
        f"bench {NOBODY} --dataset /dev/zero",
        "calibrate {pipe} --out {new}",
        "verify {folder} --manifest {pipe}",
    ],
)
def test_what_is_no_file_is_refused_and_not_read(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    names = {name: tmp_path / name for name in ("pipe", "new", "folder")}
    names["folder"].mkdir()
    with pytest.raises(SystemExit) as stop:
        main(command.format(**names).split())
    out, err = capsys.readouterr()
    assert (stop.value.code, out, err.splitlines()[0][:7]) == (3, "", "error: ")
    assert len(err.splitlines()) == 3
    assert not names["new"].exists()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("bench diff", "run.json"),
        ("verify", "k31ctl-manifest.json"),
        ("verify", "k31ctl-partial.json"),
        ("licence", "k31ctl-manifest.json"),
    ],
)
def test_a_folder_whose_record_is_a_pipe_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, name: str
) -> None:
    os.mkfifo(tmp_path / name)
    folders = [str(tmp_path)] * (2 if command == "bench diff" else 1)
    with pytest.raises(SystemExit) as stop:
        main([*command.split(), *folders])
    assert stop.value.code == 3
    assert capsys.readouterr().err.startswith("error: ")


def test_pipes_beside_a_record_are_no_curves_and_no_requests(tmp_path: Path) -> None:
    for name, content in record().items():
        (tmp_path / name).write_bytes(content)
    whole = read_page(tmp_path)
    for path in (*tmp_path.glob("series-*"), *tmp_path.glob("*.f32"), *tmp_path.glob("*.jsonl")):
        path.unlink()
        os.mkfifo(path)
    assert whole["series"]
    assert read_page(tmp_path)["series"] == []
