"""``k31ctl serve`` as a process: what is printed, what is written, what is refused."""

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
SCHEMA = Path(package.__file__).parent / "schemas" / "serve.v1.schema.json"


_LONG = ("--on", "8x-b200", "--nodes", "2", "--engine", "tokenspeed", "--kv-dtype", "bf16")


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The document that was printed, which meets the schema."""
    found: dict[str, Any] = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(found)
    return found


def test_one_file_is_printed_as_it_is(k31ctl: Run) -> None:
    done = k31ctl("serve", "kimi-k3", "--on", "8x-b300")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("#!/usr/bin/env bash\n# Kimi K3 with vllm 0.33.0 on 8x-b300")
    assert done.stdout.endswith('exec vllm serve moonshotai/Kimi-K3 "${args[@]}"\n')


def test_several_files_are_printed_each_with_its_name(k31ctl: Run) -> None:
    done = k31ctl("serve", "kimi-k3", "--on", "8x-b200", "--nodes", "2", "--as", "slurm")
    names = [line for line in done.stdout.splitlines() if line.startswith("==> ")]
    assert (done.returncode, names) == (0, ["==> launch.sbatch <==", "==> node.sh <=="])


def test_a_folder_gets_all_files_once_and_again_only_with_force(
    k31ctl: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "k3"
    words = ("serve", "kimi-k3", "--engine", "sglang", "--as", "compose", "--out", str(folder))
    done = k31ctl(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == [
        "README.md",
        "compose.yaml",
        "prometheus.yaml",
    ]
    (folder / "compose.yaml").write_text("mine")
    again = k31ctl(*words)
    assert (again.returncode, again.stdout) == (4, "")
    assert "compose.yaml is there already" in again.stderr
    assert (folder / "compose.yaml").read_text() == "mine"
    (folder / "notes.txt").write_text("kept")
    assert k31ctl(*words, "--force").returncode == 0
    assert (folder / "compose.yaml").read_text().startswith("# Kimi K3 with sglang")
    assert (folder / "notes.txt").read_text() == "kept"


def test_scripts_in_a_folder_may_be_run(k31ctl: Run, tmp_path: Path) -> None:
    assert k31ctl("serve", "kimi-k3", "--out", str(tmp_path)).returncode == 0
    assert os.access(tmp_path / "launch.sh", os.X_OK)
    assert not os.access(tmp_path / "README.md", os.X_OK)


def test_the_document_gives_every_setting_its_reason_source_and_status(k31ctl: Run) -> None:
    result = document(k31ctl("serve", "kimi-k3", "--json"))["result"]
    assert [f["path"] for f in result["files"]] == ["launch.sh", "prometheus.yaml", "README.md"]
    assert all(s["reason"] and s["source"] and s["status"] for s in result["settings"])
    by_flag = {s["flag"]: s for s in result["settings"]}
    assert by_flag["--kv-cache-dtype"]["status"] == "published"
    assert by_flag["--max-num-seqs"]["source"] == "the memory model"
    assert result["servers"][0]["recipe"] == "vllm-b300-tp8"
    assert result["servers"][0]["predicted"]["log"].startswith("GPU KV cache size: ")
    assert result["findings"] == []


def test_the_readme_says_what_the_log_should_say(k31ctl: Run, tmp_path: Path) -> None:
    found = document(k31ctl("serve", "kimi-k3", "--out", str(tmp_path), "--json"))["result"]
    log = found["servers"][0]["predicted"]["log"]
    assert log in (tmp_path / "README.md").read_text()


def test_a_release_that_cannot_read_the_model_is_refused_with_what_can(k31ctl: Run) -> None:
    done = k31ctl("serve", "kimi-k3.1-pro", "--engine", "vllm@0.33.0")
    assert (done.returncode, done.stdout) == (4, "")
    first, _, remedy = done.stderr.splitlines()
    assert first == "error: vLLM 0.33.0 cannot read KimiK31ForConditionalGeneration"
    for way in ("vllm@main", "sglang@kimi-k31-pro", "NIM container", "kimi-k3"):
        assert way in remedy


@pytest.mark.parametrize(
    "words", [("--engine", "vllm@main"), ("--engine", "vllm@0.33.0", "--image", "registry/x:1")]
)
def test_an_image_or_the_branch_serves_it_unverified_and_sparse(
    k31ctl: Run, words: tuple[str, ...]
) -> None:
    done = document(k31ctl("serve", "kimi-k3.1-pro", *words, "--json"))
    by_flag = {s["flag"]: s for s in done["result"]["settings"]}
    assert by_flag["--kv-cache-dtype"]["value"] == "fp8_ds_mla"
    assert by_flag["--attention-backend"]["value"] == "FLASHMLA_SPARSE"
    assert by_flag["--attention-backend"]["status"] == "unverified"
    assert "use_prefill_query_quantization" not in by_flag["--attention-config"]["value"]
    assert any("unverified" in warning for warning in done["warnings"])


def test_a_release_newer_than_the_catalog_is_warned_about(k31ctl: Run) -> None:
    done = k31ctl("serve", "kimi-k3", "--engine", "vllm@0.34.0")
    assert done.returncode == 0
    assert "warning: vllm 0.34.0 is newer than what is known; planned as vLLM 0.33.0" in done.stderr
    assert "its flags are taken to be those of 0.33.0" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("kimi-k3", "--on", "8x-h200"), 4, "--nodes 2 fits"),
        (("kimi-k3", "--tp", "5"), 4, "the nearest layout that it takes is"),
        (("kimi-k3", "--max-model-len", "2m"), 2, "are beyond the 1,048,576 of Kimi K3"),
        (("kimi-k3", *_LONG, "--max-model-len", "1m"), 4, "is more than the cache holds"),
        (("kimi-k3", "--engine", "vllm@nightly"), 3, "known are: vllm@0.33.0"),
        (("kimi-k3", "--engine", "embedded"), 2, "use one of vllm"),
        (("kimi-k3", "--on", "gb300-nvl72"), 2, "--on 4x-gb300"),
        (("kimi-k3", "--overlay", "x"), 2, "there are: vllm-overlay-dspark"),
        (("kimi-k3", "--overlay", "vllm-overlay-dspark"), 2, "pass --draft NAME"),
        (("kimi-k3", "--served-name", "--x"), 2, "reads as a flag"),
        (("kimi-k3", "--hosts", "a,b"), 2, "2 hosts are named for 1 nodes"),
        (("kimi-k3", "--nodes", "2", "--hosts", "a,a"), 2, "names a host twice"),
        (("kimi-k3", "--draft-tokens", "3"), 2, "there is no draft model"),
        (("kimi-k3", "--engine", "vllm@"), 2, "'vllm@' names no version"),
        (("nothing", "--json"), 3, "no profile is called 'nothing'"),
    ],
)
def test_what_cannot_be_is_told_in_one_message(
    k31ctl: Run, words: tuple[str, ...], code: int, said: str
) -> None:
    done = k31ctl("serve", *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_layout_that_does_not_fit_gives_way_to_the_next_recipe(k31ctl: Run) -> None:
    done = document(k31ctl("serve", "kimi-k3", "--on", "8x-h200", "--nodes", "2", "--json"))
    assert done["result"]["servers"][0]["recipe"] == "vllm-h200-tp8-dp2-ep"
    assert done["result"]["departures"][0]["what"] == "vllm-h200-tp16 (TP16)"


def test_a_plan_that_was_written_down_is_what_is_served(k31ctl: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    words = ("--on", "8x-b200", "--nodes", "2", "--tp", "16", "--ep", "16")
    plan.write_text(k31ctl("plan", "kimi-k3", *words, "--context", "32k", "--json").stdout)
    done = document(k31ctl("serve", "--plan", str(plan), "--json"))
    (server,) = done["result"]["servers"]
    assert done["inputs"]["on"] == "8x-b200"
    assert (server["recipe"], server["nodes"]) == ("vllm-b200-tep16", 2)
    assert server["layout"] == {"tp": 16, "pp": 1, "dp": 1, "ep": 16, "dcp": 1}
    by_flag = {s["flag"]: s for s in done["result"]["settings"]}
    assert "of 32,768 tokens at once" in by_flag["--max-num-seqs"]["reason"]


def planned(k31ctl: Run, folder: Path, *words: str) -> str:
    """The file of a plan that was asked for with these words."""
    plan = folder / "plan.json"
    done = k31ctl("plan", *words, "--json")
    assert done.returncode == 0, done.stderr
    plan.write_text(done.stdout)
    return str(plan)


def test_what_a_plan_settles_is_started_and_counted_as_planned(k31ctl: Run, tmp_path: Path) -> None:
    cache = ("--kv-dtype", "bf16", "--state-dtype", "bf16", "--kv-memory", "40GiB")
    draft = ("--draft", "inferact-k3-dspark", "--draft-tokens", "5")
    other = ("--no-prefix-caching", "--text-only", "--context", "32k")
    plan = planned(k31ctl, tmp_path, "kimi-k3", *cache, *draft, *other)
    done = document(k31ctl("serve", "--plan", plan, "--json"))
    by_flag = {s["flag"]: s["value"] for s in done["result"]["settings"]}
    assert by_flag["--kv-cache-dtype"] == "bfloat16"
    assert by_flag["--mamba-ssm-cache-dtype"] == "bfloat16"
    assert by_flag["--kv-cache-memory-bytes"] == str(40 * 2**30)
    assert by_flag["--enable-prefix-caching"] == "off"
    assert by_flag["--language-model-only"] == "on"
    assert "num_speculative_tokens=5" in by_flag["--speculative-config"]
    (server,) = done["result"]["servers"]
    capacity = json.loads(Path(plan).read_text())["result"]["capacity"]
    assert server["predicted"]["kv_cache_tokens"] == capacity["kv_cache_tokens"]
    assert done["warnings"] == []


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("vllm", ("--disable-prefix-caching", "--max-num-batched-tokens 4096")),
        ("sglang", ("--disable-radix-cache", "--chunked-prefill-size 4096")),
        ("tokenspeed", ("--disable-prefix-caching", "--chunked-prefill-size 4096")),
    ],
)
def test_each_engine_is_told_what_a_plan_settles_in_its_own_words(
    k31ctl: Run, tmp_path: Path, engine: str, expected: tuple[str, str]
) -> None:
    cache = ("--no-prefix-caching", "--chunk-tokens", "4096", "--state-dtype", "bf16")
    other = ("--text-only", "--memory-fraction", "0.9", "--context", "8k")
    plan = planned(k31ctl, tmp_path, "kimi-k3", "--engine", engine, *cache, *other)
    done = k31ctl("serve", "--plan", plan)
    assert done.returncode == 0, done.stderr
    for word in (*expected, "--language-model-only", "0.9", "bfloat16"):
        assert f"{word}\n" in done.stdout
    assert " of the plan is not taken" not in done.stderr


def test_what_no_flag_says_is_warned_about_once_each(k31ctl: Run, tmp_path: Path) -> None:
    words = ("--engine", "sglang", "--kv-memory", "40GiB", "--lora", "8", "--batch", "64")
    plan = planned(k31ctl, tmp_path, "kimi-k3", *words)
    warnings = document(k31ctl("serve", "--plan", plan, "--json"))["warnings"]
    assert warnings[0] == "--kv-memory of the plan is not taken: sglang has no such flag"
    assert warnings[1] == "--lora 8 of the plan is not taken: serve writes nothing for it"
    assert warnings[2].startswith("the plan counted ")
    assert warnings[3].startswith("the plan asks for 64 requests at once; the cache holds ")
    assert len(warnings) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("kimi-k3.1-pro", "--model-path", "/m"), "kimi-k3.1-pro is asked for, and the plan is"),
        (("--engine", "sglang"), "the plan is for vllm@0.33.0"),
        (("--engine", "vllm@0.34.0"), "the plan is for vllm@0.33.0"),
        (("--on", "8x-b200"), "the plan is for 8x-b300"),
        (("--nodes", "2"), "--nodes 2 is asked for, and the plan is for --nodes 1"),
        (("--tp", "4"), "the plan is for --tp 8"),
    ],
)
def test_another_deployment_than_the_plans_is_a_contradiction(
    k31ctl: Run, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    plan = planned(k31ctl, tmp_path, "kimi-k3")
    done = k31ctl("serve", *words, "--plan", plan)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


def test_the_same_deployment_in_other_words_is_none(k31ctl: Run, tmp_path: Path) -> None:
    plan = planned(k31ctl, tmp_path, "kimi-k3", "--kv-dtype", "fp8", "--context", "8k,16k")
    words = ("kimi-k3", "--engine", "vllm", "--on", "8x-b300", "--nodes", "1", "--tp", "8")
    done = k31ctl("serve", *words, "--plan", plan, "--kv-dtype", "bf16")
    assert done.returncode == 0
    assert "--kv-dtype bf16 is taken in the place of the plan's fp8" in done.stderr
    assert "the plan has 2 lengths; the first, 8,192 tokens, is the usual one" in done.stderr


def test_the_document_of_a_search_is_no_plan(k31ctl: Run, tmp_path: Path) -> None:
    plan = planned(k31ctl, tmp_path, "kimi-k3", "--search", "--max-nodes", "1")
    done = k31ctl("serve", "--plan", plan)
    assert (done.returncode, done.stdout) == (3, "")
    assert "the document of a search, which holds many plans" in done.stderr


@pytest.mark.parametrize(
    "gate",
    ["kv_cache_tokens>=1000000", "errors==0", "serve.max_requests>=1", "start_high_s<=7200"],
)
def test_a_gate_that_holds_is_in_the_document(k31ctl: Run, gate: str) -> None:
    (held,) = document(k31ctl("serve", "kimi-k3", "--json", "--gate", gate))["result"]["gates"]
    assert (held["gate"], held["passed"]) == (gate, True)


def test_a_gate_that_does_not_hold_keeps_files_from_being_written(
    k31ctl: Run, tmp_path: Path
) -> None:
    words = ("serve", "kimi-k3", "--gate", "kv_cache_tokens>=1e12", "--out", str(tmp_path / "k3"))
    done = k31ctl(*words)
    assert (done.returncode, done.stdout) == (4, "")
    assert "kv_cache_tokens>=1e12 does not hold: it is " in done.stderr
    told = k31ctl(*words, "--json")
    assert told.returncode == 4
    assert document(told)["result"]["gates"][0]["passed"] is False
    assert not (tmp_path / "k3").exists()


@pytest.mark.parametrize("gate", ["kv_cache_tokens", "nothing>=1"])
def test_a_gate_on_nothing_is_a_mistake(k31ctl: Run, gate: str) -> None:
    done = k31ctl("serve", "kimi-k3", "--gate", gate)
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": "k31ctl/plan/v1", "inputs": {}}'])
def test_a_file_that_is_no_plan_is_told(k31ctl: Run, tmp_path: Path, text: str) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(text)
    done = k31ctl("serve", "--plan", str(plan))
    assert (done.returncode, done.stdout) == (3, "")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_plan_with_a_size_that_no_layout_has_is_none(
    k31ctl: Run, tmp_path: Path, size: int
) -> None:
    found = json.loads(k31ctl("plan", "kimi-k3", "--json").stdout)
    found["inputs"]["layout"]["dcp"] = size
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(found))
    done = k31ctl("serve", "--plan", str(plan))
    assert (done.returncode, done.stdout) == (3, "")
    assert "not the document of a plan" in done.stderr


def test_a_part_of_a_checkpoint_is_not_served(k31ctl: Run, tmp_path: Path) -> None:
    words = ("serve", "kimi-k3", "--on", "8x-b300", "--model-path", str(tmp_path))
    assert k31ctl(*words).returncode == 0
    marker = {"schema": "k31ctl/partial/v1", "selection": "--layers 0-3"}
    (tmp_path / "k31ctl-partial.json").write_text(json.dumps(marker))
    done = k31ctl(*words)
    assert (done.returncode, done.stdout) == (4, "")
    assert "this is a part of a checkpoint: --layers 0-3" in done.stderr
    (tmp_path / "k31ctl-partial.json").write_text("{")
    assert k31ctl(*words).returncode == 3
