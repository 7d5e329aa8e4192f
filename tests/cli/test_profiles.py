import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def with_profile(tmp_path: Path, text: str, *, name: str = "mine") -> Path:
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / f"{name}.yaml").write_text(text)
    return tmp_path


def test_hardware_is_listed_by_name(k31ctl: Run) -> None:
    done = k31ctl("profiles", "list", "hardware")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "hardware"
    assert "  8x-b300          8 x NVIDIA B300 SXM" in lines


def test_a_list_is_one_document_with_the_envelope(k31ctl: Run) -> None:
    document = json.loads(k31ctl("profiles", "list", "--json").stdout)
    assert sorted(document) == ["assumptions", "inputs", "result", "schema", "version", "warnings"]
    assert document["schema"] == "k31ctl/profiles/v1"
    assert "4x-gb300" in [entry["id"] for entry in document["result"]["profiles"]]


@pytest.mark.parametrize("name", ["8x-b300", "hardware/8x-b300"])
def test_a_profile_is_shown_as_written_under_its_path(k31ctl: Run, name: str) -> None:
    done = k31ctl("profiles", "show", name)
    first, _, text = done.stdout.partition("\n")
    assert text == Path(first.removeprefix("# ")).read_text()


def test_a_profile_is_shown_as_json_with_its_dates(k31ctl: Run) -> None:
    shown = json.loads(k31ctl("profiles", "show", "8x-b300", "--json").stdout)["result"]
    assert shown["profile"]["gpu"]["memory"] == "275040 MiB"
    assert shown["profile"]["gpu"]["source"]["checked"] == "2026-11-29"


def test_a_name_that_two_kinds_have_is_refused_with_both(k31ctl: Run, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "8x-b300.yaml").write_text("id: 8x-b300\n")
    done = k31ctl("profiles", "show", "8x-b300", "--profiles", str(tmp_path))
    assert done.returncode == 3
    assert "   do: write models/8x-b300 or hardware/8x-b300\n" in done.stderr


def test_an_unknown_profile_is_three_lines_and_exit_three(k31ctl: Run) -> None:
    done = k31ctl("profiles", "show", "hardware/8x-b30")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(
        "error: no profile is called '8x-b30'\n   at: hardware/8x-b30\n   do: use 8x-b300"
    )
    assert len(done.stderr.splitlines()) == 3


def test_every_packaged_hardware_profile_is_sound(k31ctl: Run) -> None:
    folder = Path(__file__).parents[2] / "profiles" / "hardware"
    done = k31ctl("profiles", "check", *map(str, sorted(folder.glob("*.yaml"))))
    assert (done.returncode, done.stdout) == (0, "12 profiles, 0 with errors\n")


@pytest.mark.parametrize("as_path", [True, False])
def test_a_bad_profile_is_named_with_its_first_bad_key(
    k31ctl: Run, tmp_path: Path, as_path: bool
) -> None:
    folder = with_profile(tmp_path, "id: mine\nname: x\nnum_gpu: 8\n")
    file = folder / "hardware" / "mine.yaml"
    done = k31ctl("profiles", "check", *([str(file)] if as_path else ["--profiles", str(folder)]))
    assert done.returncode == 3
    assert f"{file}\n  error  unknown key num_gpu\n  do     did you mean num_gpus?\n" in done.stdout


def test_findings_have_the_names_that_every_command_uses(k31ctl: Run, tmp_path: Path) -> None:
    folder = with_profile(tmp_path, "id: other\n")
    done = k31ctl("profiles", "check", str(folder), "--json")
    (finding,) = json.loads(done.stdout)["result"]["findings"]
    assert sorted(finding) == ["id", "message", "remedy", "severity", "source", "where"]
    assert finding["message"] == "id is 'other', but the file is named mine.yaml"


def test_a_file_in_a_folder_of_no_kind_is_refused(k31ctl: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("id: mine\n")
    done = k31ctl("profiles", "check", str(file))
    assert done.returncode == 3
    assert "no kind of profile is called" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("--debug", "profiles", "show", "nothing"), ("profiles", "show", "nothing", "--debug")],
)
def test_debug_shows_the_traceback_wherever_it_stands(
    k31ctl: Run, arguments: tuple[str, ...]
) -> None:
    done = k31ctl(*arguments)
    assert done.returncode == 3
    assert "Traceback" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [(("--version",), 0), (("--help",), 0), (("--nonsense",), 2), (("profiles", "nonsense"), 2)],
)
def test_the_top_level_answers_or_says_what_is_wrong(
    k31ctl: Run, arguments: tuple[str, ...], exit_code: int
) -> None:
    assert k31ctl(*arguments).returncode == exit_code


def test_a_reader_that_leaves_early_sees_no_complaint() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "k31ctl", "profiles", "list"],
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
