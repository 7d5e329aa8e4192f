"""Values that no checkpoint should hold, each written into a real file at a known byte."""

import math
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.errors import InputError
from k31ctl.fetch.deep import Values, check_file, check_values
from k31ctl.fetch.proven import ProvenFiles
from k31ctl.fetch.value_readers import read_by_processes
from k31ctl.fetch.value_scan import special_values, weak_groups
from k31ctl.fetch.watch import Watch
from tests.fetch.tiny_checkpoint import SHARDS, place_of, write_tiny


@pytest.fixture
def weight_map(tmp_path: Path) -> dict[str, str]:
    return write_tiny(tmp_path)


def put(folder: Path, weight_map: dict[str, str], ending: str, at: int, what: bytes) -> int:
    """Overwrite bytes of the first tensor of that ending; returns where in the file."""
    name = next(n for n in weight_map if n.endswith(ending))
    path = folder / weight_map[name]
    start, _ = place_of(path, name)
    content = bytearray(path.read_bytes())
    content[start + at : start + at + len(what)] = what
    path.write_bytes(content)
    return start + at


def checked(folder: Path, *, num_jobs: int = 1, forget: bool = True) -> Values:
    proven = ProvenFiles(folder, forget=forget)
    found = check_values(folder, SHARDS, num_jobs=num_jobs, proven=proven, watch=Watch())
    proven.save()
    return found


def told(folder: Path) -> list[tuple[str, int | None, int | None, str, str]]:
    found = checked(folder).findings
    return [
        (f.tensor.rpartition("layers.")[2] if f.tensor else "", f.start, f.end, f.problem,
         f.severity.value)
        for f in found
    ]  # fmt: skip


@pytest.mark.parametrize("value", [b"\x80\x7f", b"\x80\xff", b"\xc0\x7f", b"\x81\xff"])
def test_a_bf16_infinity_or_nan_is_named_with_its_bytes(
    tmp_path: Path, weight_map: dict[str, str], value: bytes
) -> None:
    at = put(tmp_path, weight_map, "q_proj.weight", 10, value)
    ((name, start, end, problem, severity),) = told(tmp_path)
    assert (name, start, end) == ("0.self_attn.q_proj.weight", at, at + 2)
    assert (problem, severity) == ("is NaN or infinite", "error")


def test_the_largest_bf16_number_is_sound(tmp_path: Path, weight_map: dict[str, str]) -> None:
    put(tmp_path, weight_map, "q_proj.weight", 10, b"\x7f\x7f")
    assert told(tmp_path) == []


def test_a_scale_of_255_is_nan(tmp_path: Path, weight_map: dict[str, str]) -> None:
    at = put(tmp_path, weight_map, "w1.weight_scale", 5, b"\xff")
    ((_, start, end, problem, _),) = told(tmp_path)
    assert (start, end, problem) == (at, at + 1, "scale byte 255 is NaN")


def test_a_scale_far_above_the_others_is_named(tmp_path: Path, weight_map: dict[str, str]) -> None:
    at = put(tmp_path, weight_map, "w1.weight_scale", 5, bytes([120 ^ 128]))
    ((_, start, end, problem, severity),) = told(tmp_path)
    assert (start, end, severity) == (at, at + 1, "error")
    assert problem.startswith("scale byte 248 is 2^12")


def test_a_single_weak_group_is_a_warning(tmp_path: Path, weight_map: dict[str, str]) -> None:
    at = put(tmp_path, weight_map, "w1.weight_packed", 32, b"\x44" * 16)
    assert [row[1:] for row in told(tmp_path)] == [
        (at, at + 16, "1 group has no value above 2", "warning")
    ]


def test_a_sector_of_zeros_among_packed_values_is_an_error(
    tmp_path: Path, weight_map: dict[str, str]
) -> None:
    at = put(tmp_path, weight_map, "w1.weight_packed", 512, bytes(512))
    assert [row[1:] for row in told(tmp_path)] == [
        (at, at + 512, "32 groups are all zeros under a scale", "error")
    ]


def test_zeros_under_a_scale_of_zero_are_how_zeros_are_written(
    tmp_path: Path, weight_map: dict[str, str]
) -> None:
    put(tmp_path, weight_map, "w1.weight_packed", 512, bytes(512))
    put(tmp_path, weight_map, "w1.weight_scale", 32, bytes(32))
    assert told(tmp_path) == []


def test_a_matrix_of_zeros_is_an_error_and_a_vector_a_warning(
    tmp_path: Path, weight_map: dict[str, str]
) -> None:
    put(tmp_path, weight_map, "k_proj.weight", 0, bytes(32 * 64 * 2))
    put(tmp_path, weight_map, "dt_bias", 0, bytes(32 * 4))
    found = {name: severity for name, _, _, _, severity in told(tmp_path)}
    assert found == {"0.self_attn.k_proj.weight": "error", "0.self_attn.dt_bias": "warning"}


def test_many_faults_in_a_tensor_are_counted_and_not_listed(
    tmp_path: Path, weight_map: dict[str, str]
) -> None:
    put(tmp_path, weight_map, "q_proj.weight", 0, b"\x80\x7f" * 1000)
    found = told(tmp_path)
    assert len(found) == 21
    assert found[-1][3] == "has 1,000 NaNs or infinities in all"


def test_several_processes_find_what_one_finds(tmp_path: Path, weight_map: dict[str, str]) -> None:
    put(tmp_path, weight_map, "q_proj.weight", 10, b"\x80\x7f")
    assert checked(tmp_path, num_jobs=2) == checked(tmp_path)


def test_a_script_without_a_guard_reads_with_several_processes(
    tmp_path: Path, weight_map: dict[str, str]
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from k31ctl.fetch.value_readers import read_by_processes\n"
        f"read = read_by_processes(Path({str(tmp_path)!r}), {sorted(SHARDS)!r}, num_jobs=2)\n"
        "print(sorted(file for file, _ in read))\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{sorted(SHARDS)}\n", "")


@pytest.mark.parametrize(
    ("script", "why"), [("echo no room >&2; exit 3", "no room"), ("kill -9 $$", "ended with -9")]
)
def test_a_process_that_cannot_read_its_file_says_which_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(InputError, match=f"could not be read: .*{why}") as caught:
        list(read_by_processes(tmp_path, ["a.safetensors"], num_jobs=1))
    assert caught.value.where == str(tmp_path / "a.safetensors")


def test_values_that_were_read_are_not_read_again_and_told_again(
    tmp_path: Path, weight_map: dict[str, str]
) -> None:
    put(tmp_path, weight_map, "q_proj.weight", 10, b"\x80\x7f")
    first, second = checked(tmp_path), checked(tmp_path, forget=False)
    assert (first.num_reused, second.num_reused) == (0, len(SHARDS))
    assert second.findings == first.findings != ()
    put(tmp_path, weight_map, "q_proj.weight", 10, b"\x01\x3c")
    third = checked(tmp_path, forget=False)
    assert (third.num_reused, third.findings) == (len(SHARDS) - 1, ())


def test_a_broken_file_is_left_to_the_structure(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"x")
    assert check_file(tmp_path, "m.safetensors").findings == ()


@given(st.binary(max_size=64).map(lambda b: b[: len(b) // 4 * 4]))
def test_special_f32_values_are_those_that_are_not_finite(block: bytes) -> None:
    numbers = struct.unpack(f"<{len(block) // 4}f", block)
    expected = [4 * i for i, number in enumerate(numbers) if not math.isfinite(number)]
    assert list(special_values("F32", block)) == expected


@given(st.binary(max_size=64).map(lambda b: b[: len(b) // 2 * 2]))
def test_special_f16_values_are_those_that_are_not_finite(block: bytes) -> None:
    numbers = struct.unpack(f"<{len(block) // 2}e", block)
    expected = [2 * i for i, number in enumerate(numbers) if not math.isfinite(number)]
    assert list(special_values("F16", block)) == expected


E2M1 = (0, 0.5, 1, 1.5, 2, 3, 4, 6)


@given(st.lists(st.sampled_from([0x00, 0x44, 0x4C, 0x08, 0x52, 0x1F]), max_size=96))
def test_weak_groups_are_those_whose_largest_value_is_below_3(codes: list[int]) -> None:
    block = bytes(codes[: len(codes) // 16 * 16])
    expected = [
        start
        for start in range(0, len(block), 16)
        if max(max(E2M1[b & 7], E2M1[b >> 4 & 7]) for b in block[start : start + 16]) < 3
    ]
    assert list(weak_groups(block)) == expected
