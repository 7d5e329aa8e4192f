"""Progress of a verification, as a terminal and as a file see it."""

from io import StringIO
from pathlib import Path

import pytest

from k31ctl.catalog import Store, default_folders
from k31ctl.fetch.events import Waiting
from k31ctl.fetch.findings import Level
from k31ctl.fetch.verify import Wanted, verify_checkpoint
from k31ctl.report.verify_progress import verify_progress
from tests.fetch.tiny_checkpoint import write_tiny


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_bytes_rate_and_what_is_done(tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny")
    stream = Terminal()
    with verify_progress(silent=False, stream=stream, every_s=0.0) as watch:
        wanted = Wanted(deepest=Level.VALUES, num_jobs=1)
        verify_checkpoint(Store(default_folders(())), tmp_path / "tiny", wanted, watch=watch)
    shown = stream.getvalue()
    for what in ("digests", "values"):
        lines = [line for line in shown.splitlines() if what in line]
        assert lines
        assert "100.0%" in lines[-1]
        assert "B/s" in lines[-1]
    assert shown.endswith("\x1b[1A\x1b[J")  # the last line is taken away


def test_what_is_no_terminal_sees_a_line_at_times(tmp_path: Path) -> None:
    stream = StringIO()
    with verify_progress(silent=False, stream=stream) as watch:
        watch.begin("digests", 10)
        watch.advance(5)
        watch.tell(Waiting(holder="process 7 on elsewhere"))
    assert stream.getvalue() == "waiting: process 7 on elsewhere has the folder\n"


def test_a_program_sees_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with verify_progress(silent=True) as watch:
        watch.begin("digests", 10)
        watch.advance(10)
    assert capsys.readouterr() == ("", "")
