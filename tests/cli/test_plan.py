import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import k31ctl as package

Run = Callable[..., subprocess.CompletedProcess[str]]
SCHEMA = json.loads((Path(package.__file__).parent / "schemas" / "plan.v1.schema.json").read_text())


def answer(run: Run, *arguments: str) -> dict[str, Any]:
    """The document of a plan that succeeds."""
    done = run("plan", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.parametrize(
    ("arguments", "tokens"),
    [
        ("--kv-dtype fp8 --kv-memory 42.23GiB", 3_249_215),
        ("--kv-dtype fp8 --kv-memory 25.12GiB", 1_932_788),
        (
            "--on 8x-h200 --nodes 2 --tp 8 --pp 2 --kv-memory 25.50GiB --max-model-len 262144",
            1_792_823,
        ),
    ],
)
def test_what_vllm_logged_is_what_the_program_says(
    k31ctl: Run, arguments: str, tokens: int
) -> None:
    found = answer(k31ctl, "kimi-k3", "--engine", "vllm@0.33.0", *arguments.split())
    assert found["result"]["capacity"]["kv_cache_tokens"] == tokens


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "kimi-k3 --context 8k,128k,1m --batch 1,64",
        "kimi-k3 --on 8x-h200",
        "kimi-k3 --on 8x-h200 --offload host --lora 8 --image 1920x1080",
        "kimi-k3 --engine sglang --draft radixark-k3-dspark",
        "kimi-k3 --engine tokenspeed --kv-dtype fp8",
        "kimi-k3 --engine tensorrt-llm",
        "kimi-k3.1-pro --engine embedded",
        "deepseek-v3.2 --on 8x-h200 --gate fits==true",
        "kimi-linear-48b --tp 1 --on 8x-h100",
        "kimi-k3 --on 4x-gb300 --nodes 4 --dp 16 --tp 1",
        "kimi-k3 --rate 0.2 --context 16k",
        "kimi-k3 --cold-start",
        "kimi-k3 --nodes 3 --disaggregate prefill=1xTP8,decode=2xTP8 --concurrency 16",
    ],
)
def test_every_answer_meets_the_shipped_schema(k31ctl: Run, arguments: str) -> None:
    jsonschema.validate(answer(k31ctl, *arguments.split()), SCHEMA)


def test_a_search_meets_the_shipped_schema_by_its_own_part(k31ctl: Run) -> None:
    fleet = "users=500,active=0.1,requests_per_hour=6,headroom=0.3,spare=1"
    arguments = "kimi-k3 --search --systems 8x-b300 --context 16k --slo ttft_p99_s<=10 --fleet"
    found = answer(k31ctl, *arguments.split(), fleet)
    own = {**SCHEMA, "properties": SCHEMA["properties"] | {"result": {"$ref": "#/$defs/search"}}}
    jsonschema.validate(found, SCHEMA)
    jsonschema.validate(found, own)


def test_the_lines_of_a_gpu_add_up_to_what_the_driver_reports(k31ctl: Run) -> None:
    per_gpu = answer(k31ctl, "kimi-k3")["result"]["memory"]["per_gpu"]
    capacity = per_gpu.pop("capacity_bytes")
    assert sum(per_gpu.values()) == capacity == 275_040 * 2**20


def test_the_weights_are_those_of_the_published_checkpoint(k31ctl: Run) -> None:
    weights = answer(k31ctl, "kimi-k3")["result"]["weights"]
    assert weights["num_tensors"] == 497_220
    assert weights["total_params"] == 2_779_931_834_976
    assert weights["total_bytes"] == 1_560_860_324_864
    assert weights["basis"] == ["exact"]


def test_an_assumed_tensor_is_never_called_exact(k31ctl: Run) -> None:
    found = answer(k31ctl)
    assert found["result"]["weights"]["basis"] == ["derived", "assumed"]
    assert "indexer-widths" in [item["id"] for item in found["assumptions"]]


def test_lists_give_one_row_for_every_pair(k31ctl: Run) -> None:
    sweep = answer(k31ctl, "--context", "8k,128k", "--batch", "1,8")["result"]["sweep"]
    pairs = [(row["context_tokens"], row["batch"]) for row in sweep]
    assert pairs == [(8_192, 1), (8_192, 8), (131_072, 1), (131_072, 8)]


def test_the_csv_has_the_rows_of_the_document(k31ctl: Run, tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    lists = ("--context", "8k,1m", "--batch", "1,2", "--csv", str(file))
    sweep = answer(k31ctl, *lists)["result"]["sweep"]
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    assert [int(row["free_bytes"]) for row in rows] == [row["free_bytes"] for row in sweep]
    assert [row["fits"] for row in rows] == [str(row["fits"]).lower() for row in sweep]
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_a_table_can_take_the_place_of_the_text(k31ctl: Run) -> None:
    done = k31ctl("plan", "--markdown", "-")
    assert done.stdout.startswith("# Kimi K3.1 Pro on 1 x 8x-b300\n")
    assert "| 131,072 | 1 | yes |" in done.stdout


def test_the_same_question_gets_the_same_bytes(k31ctl: Run) -> None:
    asked = ("plan", "kimi-k3", "--context", "8k,1m", "--json")
    one, two = (k31ctl(*asked, PYTHONHASHSEED=seed).stdout for seed in ("1", "2"))
    assert one == two


def test_a_gate_that_holds_exits_0_and_one_that_does_not_exits_4(k31ctl: Run) -> None:
    good = k31ctl("plan", "--gate", "fits==true", "--gate", "capacity.max_requests>=1")
    bad = k31ctl("plan", "--gate", "fits==true", "--gate", "max_requests>=1_000")
    assert (good.returncode, good.stderr) == (0, "")
    assert bad.returncode == 4
    assert bad.stdout == good.stdout
    assert bad.stderr.startswith("error: max_requests>=1_000 is not met, it is 1\n")


def test_that_it_does_not_fit_is_an_answer(k31ctl: Run) -> None:
    done = k31ctl("plan", "kimi-k3", "--on", "8x-h200")
    assert done.returncode == 0
    assert done.stdout.startswith("Kimi K3 does not fit on one 8x-h200 (TP8, vLLM 0.33.0):")
    assert "way out: --nodes 2 fits as TP8xPP2" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    ["", "kimi-k3 --context 8k,128k,1m --batch 1,8,64", "kimi-k3 --on 8x-h200 --nodes 2"],
)
def test_no_line_is_wider_than_80_columns(k31ctl: Run, arguments: str) -> None:
    lines = k31ctl("plan", *arguments.split()).stdout.splitlines()
    assert max(map(len, lines)) <= 80


def test_the_answer_comes_first_and_the_assumptions_last(k31ctl: Run) -> None:
    text = k31ctl("plan", "kimi-k3", "--kv-dtype", "fp8").stdout
    order = ["fits on one 8x-b300", "per GPU, of 268.6 GiB", "weights", "activations"]
    order += ["cache pool", "a token costs 13.5 KiB", "GPU KV cache size:", "assumptions"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_a_config_of_ones_own_is_planned_like_a_profile(k31ctl: Run) -> None:
    file = Path(__file__).parent.parent / "data" / "kimi-k3.config.json"
    own, named = answer(k31ctl, str(file)), answer(k31ctl, "kimi-k3")
    assert own["result"]["memory"]["per_gpu"] == named["result"]["memory"]["per_gpu"]


@pytest.mark.parametrize(
    ("arguments", "code", "mentions"),
    [
        ("kimi-k4", 3, "kimi-k3"),
        ("--on 8x-b30", 3, "8x-b300"),
        ("--engine vlm", 3, "vllm"),
        ("--engine vllm@9.9", 3, "vllm@0.33.0"),
        ("--engine vllm@0.33.0", 4, "KimiK31ForConditionalGeneration"),
        ("--draft nothing", 3, "inferact"),
        ("--tp 7", 4, "layout-heads"),
        ("--tp 16", 4, "layout-world"),
        ("--kv-memory 42", 2, "42.23GiB"),
        ("--kv-memory -1GiB", 2, "--kv-memory"),
        ("--kv-memory 9ZiB", 2, "--kv-memory"),
        ("--context -5", 2, "--context"),
        ("--context 0", 2, "--context"),
        ("--context 8x", 2, "8k"),
        ("--context 2m", 2, "1,048,576"),
        ("--context 1k --max-model-len 512", 2, "--max-model-len"),
        ("--batch 1,,2", 2, "--batch"),
        ("--batch 1e9", 2, "--batch"),
        ("--memory-fraction nan", 2, "--memory-fraction"),
        ("--memory-fraction 0", 2, "--memory-fraction"),
        ("--state-ratio -1", 2, "--state-ratio"),
        ("--image 0x0", 2, "1920x1080"),
        ("--gate fits=true", 2, "--gate"),
        ("--gate nothing>=1", 2, "is not a number in the result"),
        ("--gate fits==inf", 2, "--gate"),
        ("--profiles no-such-folder", 3, "no-such-folder"),
        ("--csv no-such-folder/t.csv", 3, "no-such-folder/t.csv"),
        ("./no-such.json", 3, "no-such.json"),
        ("--on this", 3, "--on 8x-b300"),
    ],
)
def test_bad_input_gets_three_lines_and_its_exit_code(
    k31ctl: Run, arguments: str, code: int, mentions: str
) -> None:
    done = k31ctl("plan", *arguments.split())
    assert (done.returncode, done.stdout) == (code, "")
    lines = done.stderr.splitlines()
    assert [line[:7] for line in lines] == ["error: ", "   at: ", "   do: "]
    assert mentions in done.stderr


def test_a_table_that_cannot_be_written_leaves_nothing(k31ctl: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    done = k31ctl("plan", "--csv", str(tmp_path / "taken"))
    assert done.returncode == 3
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_debug_shows_where_a_failure_was_raised(k31ctl: Run) -> None:
    shown = k31ctl("plan", "kimi-k4", "--debug")
    assert "Traceback" in shown.stderr
    assert shown.returncode == k31ctl("plan", "kimi-k4").returncode


@pytest.mark.parametrize(
    ("arguments", "mentions"),
    [
        (f"--context {','.join(['8k'] * 1_001)}", "1001 entries"),
        (f"--context {','.join(['8k'] * 101)} --batch {','.join(['1'] * 100)}", "10000 cells"),
        ("--kv-memory 0GiB", "--kv-memory"),
        ("--resident-experts 8", "--offload host"),
    ],
)
def test_what_is_too_long_or_means_nothing_is_refused(
    k31ctl: Run, arguments: str, mentions: str
) -> None:
    done = k31ctl("plan", *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert mentions in done.stderr


@pytest.mark.parametrize("heavy", ["rich", "psutil", "httpx", "torch", "huggingface_hub", "pynvml"])
def test_a_plan_starts_without(heavy: str) -> None:
    code = (
        "import sys; from k31ctl.cli.main import main\n"
        "try: main(['plan'])\nexcept SystemExit: pass\n"
        f"sys.exit({heavy!r} in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, timeout=60, capture_output=True
    )
    assert done.returncode == 0


def test_a_table_goes_through_a_link_and_never_over_a_device(k31ctl: Run, tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real.csv", tmp_path / "link.csv", tmp_path / "pipe"
    link.symlink_to(real)
    os.mkfifo(pipe)
    assert k31ctl("plan", "--csv", str(link)).returncode == 0
    assert link.is_symlink()
    assert real.read_text().startswith("context_tokens,")
    assert k31ctl("plan", "--csv", str(pipe)).returncode == 3
    assert pipe.is_fifo()


def test_a_length_that_the_cache_does_not_hold_is_not_said_to_fit(k31ctl: Run) -> None:
    asked = ("plan", "kimi-k3", "--kv-memory", "10GiB", "--max-model-len", "1m")
    assert k31ctl(*asked).stdout.startswith("Kimi K3 does not fit on one 8x-b300")


@pytest.mark.parametrize(
    "arguments",
    [
        "--json --csv -",
        "--json --markdown -",
        "--json --html -",
        "--csv - --markdown -",
        "--csv same --markdown ./same",
    ],
)
def test_two_answers_never_share_a_place(k31ctl: Run, arguments: str) -> None:
    done = k31ctl("plan", *arguments.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: two answers cannot go to one place\n")
    assert not Path("same").exists()


@pytest.mark.parametrize("bad", ["no-such-folder/t.md", "taken", "pipe"])
def test_where_one_of_two_files_cannot_be_written_neither_is(
    k31ctl: Run, tmp_path: Path, bad: str
) -> None:
    (tmp_path / "taken").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for first, second in (("--csv", "--markdown"), ("--markdown", "--csv")):
        done = k31ctl("plan", first, str(tmp_path / "good"), second, str(tmp_path / bad))
        assert (done.returncode, done.stdout) == (3, "")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "taken"]


def test_a_gate_on_a_truth_is_answered_with_one(k31ctl: Run) -> None:
    done = k31ctl("plan", "--gate", "fits==false")
    assert done.returncode == 4
    assert done.stderr.startswith("error: fits==false is not met, it is true\n")


def test_a_folder_without_a_config_is_told_as_that(k31ctl: Run, tmp_path: Path) -> None:
    done = k31ctl("plan", str(tmp_path))
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("error: this folder holds no config.json\n")
