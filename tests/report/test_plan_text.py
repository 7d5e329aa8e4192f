"""A plan as text: the order of the answer, its width, its marks."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.offload import Tier
from k31ctl.report.plan_text import as_text, tokens
from tests.core.deployments import GIB, planned

SWEEP: Mapping[str, Any] = {"contexts": (8_192, 131_072, 1_048_576), "batches": (1, 64)}
PLANS: Mapping[str, Mapping[str, Any]] = {
    "fits": {"kv_dtype": KvFormat.FP8},
    "sparse": {"model_id": "kimi-k3.1-pro"},
    "sweep": SWEEP,
    "too-large": {"node_id": "8x-h200"},
    "stages": {"node_id": "8x-h200", "nodes": 2, "tp": 8, "pp": 2},
    "sglang": {"engine": "sglang", "draft": "radixark-k3-dspark"},
    "tokenspeed": {"engine": "tokenspeed"},
    "tensorrt-llm": {"engine": "tensorrt-llm"},
    "embedded": {"engine": "embedded"},
    "everything": {
        "offload": Tier.HOST,
        "resident_experts": 64,
        "lora_rank": 16,
        "image": (1920, 1080),
        "batches": (1_000_000_000,),
    },
}


@pytest.fixture(params=sorted(PLANS))
def text(request: pytest.FixtureRequest) -> str:
    return as_text(planned(**PLANS[request.param]))


def budget(text: str) -> dict[str, float]:
    """GiB of every line of the budget, by its label."""
    rows = text.split("per GPU", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    found = (re.match(r"\s+(\S.*?)\s{2,}#*\s*(-?[\d,]+\.\d)", row) for row in rows)
    return {row[1]: float(row[2].replace(",", "")) for row in found if row}


def test_every_line_has_at_most_80_columns_and_no_colour(text: str) -> None:
    assert max(map(len, text.splitlines())) <= 80
    assert "\x1b" not in text
    assert text.isascii()


def test_lines_end_where_their_words_end(text: str) -> None:
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_the_conclusion_is_the_first_sentence(text: str) -> None:
    assert re.match(r"Kimi K3(\.1 Pro)? (fits|does not fit) on (one|2) 8x-", text)


def test_every_mark_is_explained_and_nothing_comes_after_but_warnings(text: str) -> None:
    answer, explained = text.split("\nassumptions\n")
    used = set(re.findall(r"\b(a\d+)$", answer, flags=re.MULTILINE))
    defined = set(re.findall(r"^  (a\d+) ", explained, flags=re.MULTILINE))
    assert used
    assert used <= defined


def test_a_planner_finds_weights_activations_and_cache(text: str) -> None:
    assert {"weights", "activations", "left"} <= set(budget(text))
    assert "KV cache" in text.replace("cache pool", "KV cache")


def test_the_budget_adds_up_to_the_gpu_within_rounding() -> None:
    lines = budget(as_text(planned(kv_dtype=KvFormat.FP8)))
    inside = lines.pop("KV cache") + lines.pop("KDA state")
    # B300: 275,040 MiB; nine lines rounded to 0.1
    assert sum(lines.values()) == pytest.approx(275_040 / 1024, abs=0.5)
    assert inside < lines["cache pool"]


def test_the_log_line_is_the_published_one() -> None:
    # SemiAnalysisAI/InferenceX run 30326393603
    text = as_text(planned(kv_dtype=KvFormat.FP8, kv_memory_bytes=int(42.23 * GIB)))
    assert "vLLM 0.33.0 will log: GPU KV cache size: 3,249,215 tokens" in text


def test_the_table_stands_between_the_conclusion_and_the_budget() -> None:
    text = as_text(planned(**SWEEP))
    table = text.split("\n\n")[1].splitlines()
    assert table[0].split()[:3] == ["context", "requests", "fits"]
    assert [row.split()[:3] for row in table[2:]] == [
        ["8k", "1", "yes"],
        ["8k", "64", "yes"],
        ["128k", "1", "yes"],
        ["128k", "64", "no"],
        ["1M", "1", "yes"],
        ["1M", "64", "no"],
    ]


def test_what_does_not_fit_says_how_much_is_missing_and_the_ways_out() -> None:
    text = as_text(planned(node_id="8x-h200"))
    missing = re.search(r"([\d.]+)\s+GiB\s+are\s+missing", text)
    assert missing is not None
    assert budget(text)["left"] == -float(missing[1])
    assert "  way out: --nodes 2 fits as TP8xPP2\n" in text
    assert "will log" not in text


def test_a_rack_of_stages_says_which_stage_is_drawn() -> None:
    text = as_text(planned(node_id="8x-h200", nodes=2, tp=8, pp=2))
    assert re.search(r"per GPU of stage \d, the tightest, of 140\.4 GiB", text)
    assert "weights by stage, GiB on each rank:" in text


@pytest.mark.parametrize(
    ("count", "written"),
    [
        (1, "1"),
        (1_000, "1,000"),
        (8_192, "8k"),
        (131_072, "128k"),
        (1 << 20, "1M"),
        (1_025, "1,025"),
    ],
)
def test_lengths_are_written_as_people_write_them(count: int, written: str) -> None:
    assert tokens(count) == written


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("vllm", "vLLM 0.33.0 will log: GPU KV cache size: "),
        ("sglang", "SGLang 0.5.23 will log: max_total_num_tokens="),
        ("tokenspeed", "TokenSpeed 0.1.1 holds, in our words: "),
        ("tensorrt-llm", "TensorRT-LLM 1.4.0rc4 holds, in our words: "),
    ],
)
def test_only_words_that_an_engine_has_are_called_its_log(engine: str, said: str) -> None:
    assert said in as_text(planned(engine=engine))


def test_a_fraction_of_what_is_left_is_not_called_one_of_the_whole() -> None:
    text = " ".join(as_text(planned(engine="tensorrt-llm")).split())
    assert "0.25 of what is left of each GPU after loading" in text


def test_a_length_that_was_cut_to_fit_is_not_counted_as_if_it_were_the_full_one() -> None:
    cut = " ".join(as_text(planned(kv_memory_bytes=10 * GIB)).split())
    assert "the longest that fits: 1,048,576 do not" in cut
    assert "1.00 at once" not in cut
    assert "counted for requests of up to 1,048,576 tokens" in as_text(planned())
