"""The folder of the weights: room, files and a bounded, measured read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from k31ctl.core.host import Why
from k31ctl.host.probe import Missed
from k31ctl.host.weights import WEIGHTS_CHILD, weights
from tests.host.machine import SLEEP, Machine, bare

LARGE = 64 * 2**20


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return bare(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def write(path: Path, num_bytes: int) -> Path:
    """Write a file whose bytes are there, not a hole."""
    path.write_bytes(os.urandom(2**20) * (num_bytes // 2**20))
    return path


def test_a_large_file_is_read_and_timed(machine: Machine, folder: Path) -> None:
    write(folder / "model-1.safetensors", LARGE)
    write(folder / "config.json", 2**20)
    found = weights(machine.probe(), folder)
    assert (found.present_bytes, found.num_files) == (LARGE, 1)
    assert found.free_bytes > 0
    assert found.read is not None
    assert 0 < found.read.read_bytes <= LARGE
    assert found.read.seconds > 0
    assert found.read.bytes_per_s == found.read.read_bytes / found.read.seconds


def test_the_file_that_is_named_is_the_one_that_is_read(machine: Machine, folder: Path) -> None:
    file = write(folder / "model-2.safetensors", LARGE)
    write(folder / "model-1.safetensors", LARGE)
    found = weights(machine.probe(), file)
    assert (found.folder, found.present_bytes) == (str(folder), LARGE)


def test_links_into_a_cache_are_followed(machine: Machine, folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "blob", LARGE)
    (folder / "model.safetensors").symlink_to(tmp_path / "blob")
    found = weights(machine.probe(), folder)
    assert found.present_bytes == LARGE
    assert found.read is not None


def test_small_files_are_not_timed_and_the_reason_is_told(machine: Machine, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    found = weights(machine.probe(), folder)
    assert (found.read, found.unread) == (None, "no safetensors file of 64 MiB or more")


def test_a_folder_that_is_not_there_is_told(machine: Machine, folder: Path) -> None:
    with pytest.raises(Missed) as caught:
        weights(machine.probe(), folder / "nothing")
    assert caught.value.why == f"{folder}/nothing: no such file or directory"


def test_a_folder_that_hangs_is_left(
    machine: Machine, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the interpreter stands for the file system: it is what would wait for ever
    machine.script("python", f"exec {SLEEP} 600")
    monkeypatch.setattr(sys, "executable", str(machine.bin / "python"))
    with pytest.raises(Missed) as caught:
        weights(machine.probe(timeout_s=1.0), folder)
    assert (caught.value.kind, caught.value.why) == (
        Why.SLOW,
        f"{folder}: does not answer in time",
    )


def test_reading_leaves_access_times_alone(folder: Path) -> None:
    file = write(folder / "model.safetensors", LARGE)
    os.utime(file, ns=(10**18, 2 * 10**18))
    command = [sys.executable, "-I", "-S", "-B", str(WEIGHTS_CHILD), str(folder)]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert told["read"]["read_bytes"] > 0
    assert file.stat().st_atime_ns == 10**18


@pytest.mark.parametrize("num_files", [1, 2, 3, 5])
def test_no_byte_is_read_twice(folder: Path, num_files: int) -> None:
    for number in range(num_files):
        write(folder / f"model-{number}.safetensors", LARGE + number * 2**20)
    command = [sys.executable, "-I", "-S", "-B", str(WEIGHTS_CHILD), str(folder)]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert 0 < told["read"]["read_bytes"] <= told["present_bytes"]
