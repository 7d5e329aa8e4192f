"""``k31ctl verify`` as a process: its conclusion, its document and its exit code."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package
from tests.fetch.tiny_checkpoint import SHARDS, flip, write_manifest, write_tiny

Run = Callable[..., subprocess.CompletedProcess[str]]
SCHEMA = Path(package.__file__).parent / "schemas" / "verify.v1.schema.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.mark.parametrize("more", [(), ("--sizes",), ("--deep",)])
def test_a_sound_folder_is_exit_0_and_meets_the_schema(
    k31ctl: Run, folder: Path, more: tuple[str, ...]
) -> None:
    done = k31ctl("verify", str(folder), "--json", *more)
    assert done.returncode == 0
    document = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    assert (document["result"]["proven"], document["result"]["corrupt"]) == (True, [])


def test_a_flipped_bit_is_exit_5_with_file_and_bytes(k31ctl: Run, folder: Path) -> None:
    flip(folder / SHARDS[1], -3)
    done = k31ctl("verify", str(folder), "--json")
    assert done.returncode == 5
    document = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    (corrupt,) = document["result"]["corrupt"]
    size = (folder / SHARDS[1]).stat().st_size
    assert (corrupt["file"], corrupt["start"], corrupt["end"]) == (SHARDS[1], 0, size)
    assert done.stderr.splitlines()[0] == "error: 1 error in 1 file"


def test_the_conclusion_comes_first_and_fits_80_columns(k31ctl: Run, folder: Path) -> None:
    flip(folder / SHARDS[1], -3)
    done = k31ctl("verify", str(folder))
    assert done.stdout.startswith("Not proven: 1 error.")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_gate_that_fails_is_exit_4(k31ctl: Run, folder: Path) -> None:
    assert k31ctl("verify", str(folder), "--gate", "num_tensors==1").returncode == 4


def test_sizes_and_deep_exclude_each_other(k31ctl: Run, folder: Path) -> None:
    assert k31ctl("verify", str(folder), "--sizes", "--deep").returncode == 2


def test_damage_is_told_where_the_model_is_not_known(k31ctl: Run, folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    flip(folder / SHARDS[1], -3)
    done = k31ctl("verify", str(folder), "--json")
    assert done.returncode == 5
    document = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    result = document["result"]
    assert {each["file"] for each in result["corrupt"]} == {SHARDS[1], "config.json"}
    assert (result["num_warnings"], result["missing"]) == (1, None)
    assert result["num_tensors"] > 0


def test_an_unknown_model_is_a_warning_that_a_gate_takes(k31ctl: Run, folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    write_manifest(folder)
    done = k31ctl("verify", str(folder))
    assert done.returncode == 0
    assert "structure not held against a model: " in " ".join(done.stdout.split())
    assert k31ctl("verify", str(folder), "--gate", "num_warnings==0").returncode == 4


def test_several_errors_are_counted_in_the_plural(k31ctl: Run, folder: Path) -> None:
    flip(folder / SHARDS[0], -3)
    flip(folder / SHARDS[1], -3)
    done = k31ctl("verify", str(folder))
    assert done.stdout.startswith("Not proven: 2 errors.")
    assert done.stderr.splitlines()[0] == "error: 2 errors in 2 files"


def test_without_a_record_nothing_is_called_proven(k31ctl: Run, folder: Path) -> None:
    (folder / "k31ctl-manifest.json").unlink()
    done = k31ctl("verify", str(folder))
    assert done.returncode == 0
    assert "contents are not proven" in " ".join(done.stdout.split())
    assert "Proven" not in done.stdout
