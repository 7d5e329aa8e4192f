"""``k31ctl lint`` as users run it: answers, forms, fixes, and files that are none."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package

Run = Callable[..., subprocess.CompletedProcess[str]]
GOOD = (
    "vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 "
    "--enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8"
)
WITHOUT_TRUST = GOOD.replace(" --trust-remote-code", "")
COMPOSE = """services:
  kimi:
    image: vllm/vllm-openai:v0.33.0
    ipc: host
    gpus: all
    command:
      - --model
      - moonshotai/Kimi-K3
      - --tool-call-parser
      - kimi_k2
      - --enable-auto-tool-choice
      - --reasoning-parser
      - kimi_k3
      - -tp
      - "8"
"""


def script(folder: Path, command: str, *before: str) -> Path:
    path = folder / "launch.sh"
    path.write_text("\n".join(("#!/bin/bash", *before, command, "")))
    return path


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_clean_file_is_exit_0_and_says_so(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, GOOD)
    done = k31ctl("lint", str(path), "--on", "8x-b300", "--engine", "vllm@0.33.0")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}: nothing wrong found\n", "")


def test_an_error_is_exit_4_with_its_line_its_remedy_and_its_rule(
    k31ctl: Run, tmp_path: Path
) -> None:
    path = script(tmp_path, WITHOUT_TRUST, "export A=1", "")
    done = k31ctl("lint", str(path), "--on", "8x-b300")
    assert done.returncode == 4
    told = " ".join(done.stdout.split())
    assert told.startswith(f"{path}:4 error --trust-remote-code is missing")
    assert "(trust-remote-code-missing)" in done.stdout
    assert f"+{GOOD.replace(' --trust-remote-code', '')} --trust-remote-code" in done.stdout
    assert done.stderr.startswith("error: 1 error in ")


def test_the_document_meets_its_schema(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, WITHOUT_TRUST)
    text = (Path(package.__file__).parent / "schemas" / "lint.v1.schema.json").read_text()
    done = k31ctl("lint", str(path), "--on", "8x-b300", "--json")
    Draft202012Validator(json.loads(text)).validate(document(done))
    (finding,) = document(done)["result"]["findings"]
    assert finding["where"] == f"{path}:2"
    assert document(done)["result"]["launches"][0]["hardware"] == "8x-b300"
    assert document(done)["result"]["corrected"][0]["corrected"][-1] == "--trust-remote-code"


def test_a_command_is_checked_as_a_file_is(k31ctl: Run) -> None:
    done = k31ctl("lint", "--on", "8x-h200", "--json", "--", *GOOD.split())
    assert done.returncode == 4
    assert [f["id"] for f in document(done)["result"]["findings"]] == ["memory-weights"]


def test_a_file_is_read_from_standard_input(shell: Run) -> None:
    done = shell(f"echo {GOOD!r} | k31ctl lint - --engine vllm@0.33.0 --on 8x-b300")
    assert (done.returncode, done.stdout) == (0, "standard input: nothing wrong found\n")


def test_fix_writes_the_file_and_keeps_what_it_was(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, WITHOUT_TRUST)
    before = path.read_text()
    path.chmod(0o750)
    done = k31ctl("lint", "--fix", str(path), "--on", "8x-b300")
    assert done.returncode == 4
    assert path.read_text() == before.replace(WITHOUT_TRUST, f"{WITHOUT_TRUST} --trust-remote-code")
    assert (tmp_path / "launch.sh.orig").read_text() == before
    assert path.stat().st_mode & 0o777 == 0o750
    assert k31ctl("lint", str(path), "--on", "8x-b300").returncode == 0


def test_fix_changes_a_renamed_flag_a_variable_and_a_list_of_a_manifest(
    k31ctl: Run, tmp_path: Path
) -> None:
    path = tmp_path / "compose.yaml"
    path.write_text(COMPOSE)
    k31ctl("lint", "--fix", str(path), "--on", "8x-b300")
    fixed = COMPOSE.replace("kimi_k2", "kimi_k3") + "      - '--trust-remote-code'\n"
    assert path.read_text() == fixed
    sglang = "python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --tp-size 8 "
    rest = "--trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3"
    old = script(
        tmp_path, f"{sglang}--cuda-graph-max-bs 256 {rest}", "export SGLANG_K3_ATTN_RES_MODE=jit"
    )
    k31ctl("lint", "--fix", str(old), "--on", "8x-b300")
    assert old.read_text() == f"#!/bin/bash\n{sglang}--cuda-graph-max-bs-decode 256 {rest}\n"


def test_fix_leaves_json_out_of_a_script_inside_other_quotes(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, f"bash -c '{GOOD} --kv-cache-dtype fp8'")
    before = path.read_text()
    done = k31ctl("lint", "--fix", str(path), "--on", "8x-b300")
    assert (done.returncode, path.read_text()) == (4, before)
    assert not (tmp_path / "launch.sh.orig").exists()


def test_fix_of_a_command_is_a_mistake(k31ctl: Run) -> None:
    assert k31ctl("lint", "--fix", "--", *GOOD.split()).returncode == 2


def test_sarif_has_a_rule_a_level_and_a_line_for_each_finding(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, WITHOUT_TRUST)
    log = document(k31ctl("lint", str(path), "--format", "sarif"))
    assert (log["version"], log["$schema"]) == (
        "2.1.0",
        "https://json.schemastore.org/sarif-2.1.0.json",
    )
    (run,) = log["runs"]
    (result,) = run["results"]
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert (result["level"], result["ruleId"]) == ("error", "trust-remote-code-missing")
    place = result["locations"][0]["physicalLocation"]
    assert (place["artifactLocation"]["uri"], place["region"]["startLine"]) == (str(path), 2)


def test_github_gets_one_command_for_each_finding(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, WITHOUT_TRUST)
    done = k31ctl("lint", str(path), "--format", "github")
    head = f"::error file={path},line=2,title=trust-remote-code-missing::--trust-remote-code is"
    assert done.stdout.startswith(head)
    assert done.stdout.count("\n") == 1


def test_markdown_is_written_beside_the_answer(k31ctl: Run, tmp_path: Path) -> None:
    path, table = script(tmp_path, WITHOUT_TRUST), tmp_path / "lint.md"
    k31ctl("lint", str(path), "--markdown", str(table))
    assert f"| {path}:2 | error |" in table.read_text()


def test_a_gate_counts_findings(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, f"{GOOD} --seed 1 --seed 2")
    arguments = ("lint", str(path), "--on", "8x-b300")
    assert k31ctl(*arguments).returncode == 0
    assert k31ctl(*arguments, "--gate", "warnings==0").returncode == 4


def test_a_name_of_a_model_path_tells_the_model(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, GOOD.replace("moonshotai/Kimi-K3", "/mnt/models/Kimi-K3.1-Pro"))
    found = document(k31ctl("lint", str(path), "--json"))["result"]
    assert found["launches"][0]["model"] == "kimi-k3.1-pro"
    assert "model-k31-unsupported" in [f["id"] for f in found["findings"]]


def test_what_only_a_run_knows_is_not_complained_about(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, 'vllm serve moonshotai/Kimi-K3 -tp "$TP" $FLAGS')
    assert k31ctl("lint", str(path), "--on", "8x-b300").returncode == 0


def test_nothing_of_a_script_is_run(k31ctl: Run, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    path = script(tmp_path, f"{GOOD} --seed $(touch {mark})", f"A=`touch {mark}`", f": > {mark}")
    k31ctl("lint", str(path))
    assert not mark.exists()


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)
MERGES = "a0: &a0 {x: y}\n" + "".join(
    f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30)
)
ENDING = "services:\n  x: {image: none, command: *a29}\n"
HOSTILE: dict[str, bytes] = {
    "empty.sh": b"",
    "nul.sh": b"vllm serve a\0b\n",
    "binary.sh": bytes(range(256)) * 64,
    "latin1.sh": "vllm serve \u00e9\n".encode("latin-1"),
    "large.sh": b"vllm serve moonshotai/Kimi-K3\n" * 1_700_000,  # about 50 MB
    "many.sh": b"vllm serve moonshotai/Kimi-K3\n" * 200,
    "words.sh": b"vllm serve " + b"a " * 200_000 + b"\n",
    "nested.sh": b"if true; then\n" * 3000 + b"vllm serve m\n" + b"fi\n" * 3000,
    "doubling.sh": b"A=(x)\n" + b'A=("${A[@]}" "${A[@]}")\n' * 40 + b'vllm serve "${A[@]}"\n',
    "growing.sh": b"A=xxxxxxxxxx\n" + b'A="$A$A"\n' * 40 + b'vllm serve "$A"\n',
    "open.yaml": b"services: {x: [}\n",
    "deep.yaml": b"services: " + b"[" * 50_000 + b"]" * 50_000,
    "laughs.yaml": (LAUGHS + ENDING).encode(),
    "merges.yaml": (MERGES + ENDING).encode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_message(k31ctl: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(HOSTILE[name])
    done = k31ctl("lint", str(path))
    assert (done.returncode, done.stdout) == (3, ""), done
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 3


@pytest.mark.parametrize(
    "text",
    [
        'vllm serve "moonshotai/Kimi-K3 --trust-remote-code\n',
        "cat <<EOF\nvllm serve moonshotai/Kimi-K3\n",
        f"vllm serve {'$(' * 3000}{')' * 3000}\n",
        "f() { g; g; g; }\ng() { f; f; f; }\nf\nvllm serve moonshotai/Kimi-K3\n",
        "vllm serve --speculative-config '{' --attention-config '[[[['\n",
        f"vllm serve m --attention-config '{'[' * 100_000}'\n",
    ],
)
def test_broken_shell_ends_with_an_answer(k31ctl: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.sh"
    path.write_text(text)
    done = k31ctl("lint", str(path))
    assert done.returncode in (0, 3, 4), done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_a_pipe_a_loop_and_nothing_are_exit_3(k31ctl: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("", "pipe", "loop", "missing"):
        done = k31ctl("lint", str(tmp_path / name))
        assert (done.returncode, done.stderr.count("\n")) == (3, 3)


def test_files_that_cannot_be_read_hide_nothing_and_are_exit_3(k31ctl: Run, tmp_path: Path) -> None:
    bad, missing = tmp_path / "open.sh", tmp_path / "missing.sh"
    bad.write_text(f"{GOOD} --served-model-name 'k3\n")
    wrong = script(tmp_path, WITHOUT_TRUST)
    names = [str(path) for path in (bad, missing, wrong)]
    done = k31ctl("lint", *names, "--on", "8x-b300", "--fix")
    assert done.returncode == 3
    assert f"{bad}:1" in done.stdout
    assert f"{missing}" in done.stdout
    assert "(trust-remote-code-missing)" in done.stdout
    assert done.stderr.startswith("error: 2 of 3 files could not be checked")
    assert bad.read_text() == f"{GOOD} --served-model-name 'k3\n"
    assert "--trust-remote-code" in wrong.read_text()


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
def test_what_could_not_be_checked_is_told_in_every_form(
    k31ctl: Run, tmp_path: Path, form: str
) -> None:
    wrong, missing = script(tmp_path, WITHOUT_TRUST), tmp_path / "missing.sh"
    done = k31ctl("lint", str(wrong), str(missing), "--on", "8x-b300", "--format", form)
    assert done.returncode == 3
    assert "trust-remote-code-missing" in done.stdout
    assert f"{missing}" in done.stdout


def test_the_document_lists_what_could_not_be_checked(k31ctl: Run, tmp_path: Path) -> None:
    wrong, missing = script(tmp_path, WITHOUT_TRUST), tmp_path / "missing.sh"
    text = (Path(package.__file__).parent / "schemas" / "lint.v1.schema.json").read_text()
    done = k31ctl("lint", str(missing), str(wrong), "--json")
    Draft202012Validator(json.loads(text)).validate(document(done))
    (unread,) = document(done)["result"]["unread"]
    assert (unread["file"], unread["message"]) == (str(missing), "no such file or directory")
    assert document(done)["result"]["errors"] == 1


def test_nothing_to_check_is_a_mistake(k31ctl: Run) -> None:
    assert k31ctl("lint").returncode == 2


def test_control_codes_of_a_file_do_not_reach_the_terminal(k31ctl: Run, tmp_path: Path) -> None:
    path = script(tmp_path, f"{GOOD} --\x1b[31mred")
    done = k31ctl("lint", str(path))
    assert "\x1b" not in done.stdout + done.stderr
