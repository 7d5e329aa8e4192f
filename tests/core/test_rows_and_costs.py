"""What a token, a request, an image, an adapter and an offloaded expert cost."""

from typing import Any

import pytest

from k31ctl.core.kv_cache import IndexFormat, KvFormat, StateDtype
from k31ctl.core.offload import Tier
from k31ctl.core.vision import image_tokens
from k31ctl.errors import UsageError
from tests.core.deployments import GIB, model, planned


@pytest.mark.parametrize(
    ("model_id", "node", "kv_dtype", "bytes_per_token"),
    [
        ("kimi-k3", "8x-b300", KvFormat.BF16, 27_648),  # 24 x 1152
        ("kimi-k3", "8x-b300", KvFormat.FP8, 13_824),  # 24 x 576
        ("kimi-k3.1-pro", "8x-b300", KvFormat.BF16, 30_816),  # 24 x (1152 + 132)
        ("kimi-k3.1-pro", "8x-b300", KvFormat.FP8, 16_992),  # 24 x (576 + 132), FlashInfer
        ("kimi-k3.1-pro", "8x-h200", KvFormat.FP8, 18_912),  # 24 x (656 + 132), FlashMLA
        ("kimi-k3.1-pro", "8x-b300", KvFormat.NVFP4_DS_MLA, 11_616),  # 24 x (352 + 132)
    ],
)
def test_a_token_costs_only_the_full_attention_layers(
    model_id: str, node: str, kv_dtype: KvFormat, bytes_per_token: int
) -> None:
    plan = planned(model_id, node, nodes=2, tp=8, kv_dtype=kv_dtype)
    assert plan.cost.bytes_per_token == bytes_per_token


@pytest.mark.parametrize(
    ("index_dtype", "expected"),
    [(IndexFormat.FP8, 3_168), (IndexFormat.MXFP4, 1_632), (IndexFormat.BF16, 6_144)],
)
def test_index_keys_cost_their_row_in_24_layers(index_dtype: IndexFormat, expected: int) -> None:
    plan = planned("kimi-k3.1-pro", index_dtype=index_dtype)
    assert plan.cost.indexer_bytes_per_token == expected


@pytest.mark.parametrize(
    ("state_dtype", "expected"),
    [(StateDtype.FP32, 449_372_160), (StateDtype.BF16, 232_316_928)],
)
def test_a_request_keeps_the_same_state_at_any_length(
    state_dtype: StateDtype, expected: int
) -> None:
    plan = planned("kimi-k3", state_dtype=state_dtype, contexts=(1, 1_000_000))
    assert plan.cost.state_bytes_per_sequence == expected
    assert plan.cells[0].state_bytes == plan.cells[1].state_bytes


def test_sglang_keeps_all_index_keys_on_every_decode_context_rank() -> None:
    cache = planned("kimi-k3.1-pro", engine="sglang", tp=8, dcp=8).caches[0]
    assert cache.latent_bytes_per_token == 27_648 / 8
    assert cache.indexer_bytes_per_token == 3_168


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [
        (1, 1, 1),
        (224, 224, 64),
        (448, 448, 256),
        (512, 512, 361),
        (1024, 1024, 1_369),
        (1280, 720, 1_196),
        (1920, 1080, 2_691),
        (2560, 1440, 4_784),
        (2480, 3508, 11_214),
        (3840, 2160, 10_764),
        (4000, 3000, 15_444),
        (8000, 6000, 16_428),
        (7680, 4320, 16_587),
        (1861, 7041, 16_817),
        (8000, 100, 1_024),
    ],
)
def test_an_image_becomes_as_many_tokens_as_the_engines_make_of_it(
    width: int, height: int, tokens: int
) -> None:
    # counted by vLLM's and SGLang's own resize functions
    vision = model("kimi-k3").vision
    assert vision is not None
    assert image_tokens(vision, width=width, height=height).num_tokens == tokens


def test_eight_h200_do_not_hold_k3_and_the_way_out_is_named() -> None:
    plan = planned("kimi-k3", "8x-h200")
    assert not plan.fits
    assert any("--nodes 2" in remedy for remedy in plan.remedies)
    assert plan.cell.free_bytes < 0


def test_what_does_not_fit_for_its_length_is_offered_shorter_and_smaller() -> None:
    plan = planned("kimi-k3", contexts=(1_048_576,), batches=(2,))
    assert not plan.fits
    assert any(remedy.startswith("--context") for remedy in plan.remedies)
    assert any(remedy.startswith("--batch 1") for remedy in plan.remedies)
    assert any("--kv-dtype fp8" in remedy for remedy in plan.remedies)


def test_offloaded_experts_set_a_ceiling_from_the_host_link() -> None:
    plan = planned("kimi-k3", "8x-h200", offload=Tier.HOST, resident_experts=448)
    assert plan.offload is not None
    # 92 layers x 16 experts x 17,547,264 bytes, half of them elsewhere
    assert plan.offload.bytes_per_token == pytest.approx(92 * 16 * 17_547_264 / 2)
    link = plan.parts.node.pcie.bandwidth_bytes_per_s * 8
    assert plan.offload.max_tok_s == pytest.approx(link / plan.offload.bytes_per_token)
    assert plan.fits


def test_all_experts_resident_move_nothing() -> None:
    plan = planned("kimi-k3", offload=Tier.NVME, resident_experts=896)
    assert plan.offload is not None
    assert plan.offload.bytes_per_token == 0
    assert plan.weights[0].total_bytes == planned("kimi-k3").weights[0].total_bytes


def test_an_offload_that_the_tier_cannot_hold_does_not_fit() -> None:
    plan = planned("kimi-k3", "4x-gb300", offload=Tier.HOST, resident_experts=0)
    assert plan.offload is not None
    assert not plan.offload.fits_tier
    assert not plan.fits


def test_an_adapter_costs_sixteen_bytes_a_parameter() -> None:
    plan = planned("kimi-k3", lora_rank=16)
    assert plan.finetune is not None
    assert plan.finetune.total_bytes == 16 * plan.finetune.adapter_params
    line = next(line for line in plan.lines if line.key == "finetune_bytes")
    assert line.num_bytes == plan.finetune.per_gpu_bytes


def test_a_draft_takes_weights_and_rows_of_its_own() -> None:
    with_draft = planned("kimi-k3", draft="inferact-k3-dspark", kv_memory_bytes=40 * GIB)
    plain = planned("kimi-k3", draft_tokens=7, kv_memory_bytes=40 * GIB)
    # five latent layers more share each block
    assert with_draft.capacity.bytes_per_block * 24 == plain.capacity.bytes_per_block * 29
    assert any(line.key == "draft_bytes" for line in with_draft.lines)


@pytest.mark.parametrize(
    "given",
    [
        {"contexts": (1_048_577,)},
        {"max_model_len": 2_000_000},
        {"max_model_len": 8_192, "contexts": (16_384,)},
        {"memory_fraction": 1.5},
    ],
)
def test_numbers_that_cannot_be_are_a_usage_error(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        planned("kimi-k3", **given)


def test_images_for_a_text_model_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="images"):
        planned("deepseek-v3.2", image=(512, 512))


def test_where_another_layout_of_the_same_nodes_fits_it_is_offered() -> None:
    plan = planned("kimi-k3", engine="sglang", dp=8)
    assert not plan.fits
    assert "--tp 8 fits on as many nodes" in plan.remedies


def test_a_latent_draft_is_in_the_cost_of_a_token() -> None:
    cache = planned("kimi-k3", draft="inferact-k3-dspark").caches[0]
    assert cache.bytes_per_token == 29 * 1_152
