"""What engines printed at start-up on real machines, and what the plan says they print."""

import csv
from pathlib import Path
from typing import Any

import pytest

from k31ctl.core.kv_cache import KvFormat, StateDtype
from tests.core.deployments import GIB, planned

BLOCKS = Path(__file__).parent.parent / "data" / "vllm-0.33.0-kimi-k3-blocks.csv"


@pytest.mark.parametrize(
    ("node", "kv_gib", "given", "tokens"),
    [
        # SemiAnalysisAI/InferenceX run 30326393603
        ("8x-b300", 42.23, {"kv_dtype": KvFormat.FP8}, 3_249_215),
        # vllm-project/vllm PR 50055
        ("8x-b300", 25.12, {"kv_dtype": KvFormat.FP8}, 1_932_788),
        # mnmehta/kimi-k3, TP8 x PP2
        ("8x-h200", 25.50, {"nodes": 2, "tp": 8, "pp": 2, "max_model_len": 262_144}, 1_792_823),
    ],
)
def test_vllm_logs_of_kimi_k3_are_met_to_the_token(
    node: str, kv_gib: float, given: dict[str, Any], tokens: int
) -> None:
    plan = planned("kimi-k3", node, kv_memory_bytes=int(kv_gib * GIB), **given)
    assert plan.capacity.kv_cache_tokens == tokens
    assert plan.capacity.log == f"GPU KV cache size: {tokens:,} tokens"


@pytest.mark.parametrize(
    ("dcp", "kv_gib", "tokens"),
    [
        (1, 46.80, 715_072),
        (8, 46.804, 5_721_088),  # logged as 46.80 too: one block more than exactly that holds
    ],
)
def test_vllm_logs_of_kimi_k2_thinking_are_met_to_the_token(
    dcp: int, kv_gib: float, tokens: int
) -> None:
    # vllm-project/recipes pull 115: TP8, bf16, with and without DCP8
    plan = planned("kimi-k2-thinking", "8x-h200", kv_memory_bytes=int(kv_gib * GIB), dcp=dcp)
    assert plan.capacity.kv_cache_tokens == tokens


def test_sglangs_cache_of_deepseek_v32_has_its_published_size() -> None:
    # sgl-project/sglang issue 11309: 975,424 tokens take 43.67 GiB at 656 + 132 bytes a layer
    plan = planned("deepseek-v3.2", "8x-b200", "sglang", kv_dtype=KvFormat.FP8_DS_MLA)
    assert round(975_424 * plan.cost.bytes_per_token / GIB, 2) == 43.67


@pytest.mark.parametrize("row", list(csv.DictReader(BLOCKS.read_text().splitlines())))
def test_every_row_of_vllms_own_block_calculator_is_met(row: dict[str, str]) -> None:
    plan = planned(
        node_id="roomy",
        tp=int(row["tensor_parallel"]),
        pp=1,
        kv_dtype=KvFormat(row["kv_dtype"]),
        state_dtype=StateDtype(row["state_dtype"]),
        draft_tokens=int(row["draft_tokens"]),
    )
    assert plan.rows.state_bytes == int(row["state_page_bytes"])
    assert plan.caches[0].state_bytes_per_sequence == int(row["state_bytes_per_request"])
    assert plan.capacity.block_tokens == int(row["block_tokens"])
    assert plan.capacity.bytes_per_block == int(row["bytes_per_block"])


def test_sglangs_309_slots_take_what_it_logged() -> None:
    # whn09/kimi-k3-sglang: 309 slots logged 15.67 GB for the recurrent part, with one of padding
    plan = planned("kimi-k3", engine="sglang")
    conv_bytes = 69 * 3 * (96 * 128 // 8) * 3 * 2
    recurrent = plan.caches[0].state_bytes_per_sequence - conv_bytes
    assert round(310 * recurrent / GIB, 2) == 15.67


@pytest.mark.parametrize(
    ("node", "sizes", "stage", "loaded_gib", "within"),
    [
        ("8x-h200", {"nodes": 2, "tp": 16, "pp": 1}, 0, 129.75, 0.0002),
        ("8x-h200", {"nodes": 2, "tp": 8, "pp": 2}, 0, 96.79, 0.004),
    ],
)
def test_published_load_sizes_are_met(
    node: str, sizes: dict[str, Any], stage: int, loaded_gib: float, within: float
) -> None:
    # mnmehta/kimi-k3 logs, "Model loading took"
    gib = planned("kimi-k3", node, **sizes).weights[stage].total_bytes / GIB
    assert gib == pytest.approx(loaded_gib, rel=within)


def test_weights_per_rank_are_those_of_the_ledger() -> None:
    tp16 = planned("kimi-k3", "8x-h200", nodes=2, tp=16, pp=1)
    pp2 = planned("kimi-k3", "8x-h200", nodes=2, tp=8, pp=2)
    assert round(tp16.weights[0].total_bytes / GIB, 2) == 129.74
    assert round(pp2.weights[0].total_bytes / GIB, 2) == 96.48


def test_the_published_pool_of_eight_b300_is_predicted_within_a_gib() -> None:
    # 42.23 GiB at a memory fraction of 0.95 in the same run
    plan = planned("kimi-k3", kv_dtype=KvFormat.FP8, memory_fraction=0.95)
    assert plan.capacity.pool_bytes / GIB == pytest.approx(42.23, abs=1.0)


@pytest.mark.parametrize(
    ("given", "blocks"),
    [
        ({}, 683 + 6),  # ceil(1048576 / 1536) and 3 groups x 2 states
        ({"prefix_caching": False}, 683 + 3),
        ({"state_slots": 3}, 683 + 9),  # with the prefill checkpoint of FlashKDA
        ({"draft_tokens": 7}, 683 + 3 * (2 + 7)),
        ({"draft_tokens": 7, "replay_ssm": True}, 683 + 6),
        ({"dcp": 8}, 86 + 6),
    ],
)
def test_a_request_holds_the_blocks_that_vllm_counts(given: dict[str, Any], blocks: int) -> None:
    plan = planned("kimi-k3", kv_dtype=KvFormat.FP8, **given)
    assert plan.capacity.blocks_per_request == blocks


def test_sglangs_running_requests_are_slots_by_its_strategy() -> None:
    # q = 5 with extra buffers, 4 lazy, 1 without the radix cache
    slots = planned("kimi-k3", engine="sglang").capacity.state_slots
    for given, per_request in (({}, 5), ({"state_slots": 4}, 4), ({"prefix_caching": False}, 1)):
        plan = planned("kimi-k3", engine="sglang", **given)
        assert plan.capacity.log.endswith(f"max_running_requests={slots // per_request}")
