"""Tools that are missing, mad or asleep, and files that cannot be read."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from k31ctl.core.host import Why
from k31ctl.host.describe import Asked, describe
from k31ctl.host.probe import Missed, whole
from tests.host.machine import CAT, SLEEP, Machine, b300, lock

PATIENT_S = 60.0


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def missed(machine: Machine, *command: str, timeout_s: float = PATIENT_S) -> Missed:
    with pytest.raises(Missed) as caught:
        machine.probe(timeout_s=timeout_s).run(*command)
    return caught.value


def test_what_a_tool_prints_is_read_even_where_it_is_not_utf_8(machine: Machine) -> None:
    machine.script("tool", r"printf 'a\377b\n'")
    assert machine.probe().run("tool") == "a\ufffdb\n"


def test_a_missing_tool_is_absent(machine: Machine) -> None:
    found = missed(machine, "tool")
    assert (found.kind, found.why) == (Why.ABSENT, "tool is not installed")


def test_a_failing_tool_is_told_with_its_own_words(machine: Machine) -> None:
    machine.script("tool", "echo no device >&2; exit 9")
    found = missed(machine, "tool", "-q", "more")
    assert (found.kind, found.why) == (Why.FAILED, "tool -q ended with exit code 9: no device")


def test_a_tool_that_is_no_program_is_told(machine: Machine) -> None:
    machine.script("tool", "")
    (machine.bin / "tool").write_bytes(b"\x7fELF garbage")
    assert missed(machine, "tool").kind is Why.FAILED


def test_a_tool_that_hangs_is_ended_with_its_children(machine: Machine, tmp_path: Path) -> None:
    note = tmp_path / "child"
    machine.script("tool", f"{SLEEP} 600 & echo $! > {note}; echo started; wait")
    found = missed(machine, "tool", timeout_s=2.0)
    assert (found.kind, found.why) == (Why.SLOW, "tool did not answer in time")
    assert is_gone(int(note.read_text()))


def is_gone(pid: int) -> bool:
    """Whether a process ends, or waits only for its parent to notice; asked for half a minute."""
    status = Path(f"/proc/{pid}/stat")
    for _ in range(3000):
        try:
            if status.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_a_tool_that_never_stops_printing_is_stopped(machine: Machine) -> None:
    machine.script("tool", f"exec {CAT} /dev/zero")
    found = missed(machine, "tool")
    assert (found.kind, found.why) == (Why.FAILED, "tool prints more than 4 MiB")


def test_a_tool_that_complains_without_end_is_stopped_too(machine: Machine) -> None:
    machine.script("tool", f"exec {CAT} /dev/zero >&2")
    assert missed(machine, "tool").kind is Why.FAILED


def test_a_folder_in_place_of_a_file_is_told(machine: Machine) -> None:
    (machine.root / "proc").mkdir()
    with pytest.raises(Missed, match="/proc: is a directory"):
        machine.probe().text("/proc")
    assert machine.probe().line("/proc") == ""
    assert machine.probe().names("/nothing") == []


def test_a_file_that_may_not_be_read_is_denied(machine: Machine) -> None:
    machine.file("/secret").probe()
    lock(machine.root / "secret")
    with pytest.raises(Missed) as caught:
        machine.probe().text("/secret")
    assert caught.value.kind is Why.DENIED


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("16x", 16),
        ("-1", -1),
        (" 7 kB", 7),
        ("", None),
        ("N/A", None),
        ("9" * 30, None),
        ("²", None),
    ],
)
def test_whole_numbers_are_read_from_the_start(text: str, number: int | None) -> None:
    assert whole(text) == number


def test_one_tool_that_hangs_leaves_the_other_sections_alone(tmp_path: Path) -> None:
    machine = b300(tmp_path)
    machine.script("nvidia-smi", f"exec {SLEEP} 600")
    host = describe(machine.probe(timeout_s=3.0), Asked(), sections={"gpus", "memory", "rdma"})
    assert host.gpus is None
    assert host.memory is not None
    assert host.rdma is not None
    (slow,) = host.missed
    assert (slow.section, slow.kind) == ("gpus", Why.SLOW)


def test_nothing_runs_on_when_the_questions_are_over(machine: Machine, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    machine.script("tool", f"echo $$ > {note}; exec {SLEEP} 600")
    probe = machine.probe(timeout_s=PATIENT_S)
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(probe.run, "tool")
        while not (note.exists() and note.read_text().strip()):
            time.sleep(0.01)
        probe.processes.end_all()
        assert isinstance(asked.exception(), Missed)
    assert is_gone(int(note.read_text()))
    with pytest.raises(Missed, match="the time is over"):
        probe.run("tool")
