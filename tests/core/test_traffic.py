"""Bytes and operations of a step, counted by hand from the model's own configuration.

K3: 93 layers (24 latent, 69 linear), 92 of them with 896 experts of 16 chosen, width 7168.
"""

from dataclasses import replace

import pytest

from k31ctl.core.step import StepModel
from k31ctl.core.traffic import Traffic
from tests.core.deployments import model, speed
from tests.core.speeds import case

# One GPU that holds everything: nothing is divided and nothing repeated.
WHOLE = case("kimi-k3", "roomy", tp=1)
TP8 = case("kimi-k3", "8x-b300", tp=8)
SPARSE = case("kimi-k3.1-pro", "8x-b300", "vllm@main", tp=8)


def evenly_routed() -> StepModel:
    """The step with uniform routing, as a paper would count it."""
    step = WHOLE.step(speed())
    return StepModel(step.counted, replace(step.rates, routing_concentration=0.0), step.replica)


def dense_bytes(counted: Traffic) -> float:
    return sum(stage.dense_bytes + stage.head_bytes for stage in counted.stages)


# 896 x (1 - (1 - 16/896)^B); 111.16 GB of other text weights and 92 layers of 17,547,264 B each
@pytest.mark.parametrize(
    ("tokens", "experts", "gigabytes"),
    [
        (1, 16.0, 137.0),
        (2, 31.7, 162.4),
        (4, 62.3, 211.7),
        (8, 120.3, 305.3),
        (16, 224.4, 473.4),
        (32, 392.6, 745.0),
        (64, 613.2, 1_101),
        (128, 806.7, 1_414),
        (256, 887.1, 1_543),
    ],
)
def test_a_step_reads_the_experts_that_its_tokens_choose(
    tokens: int, experts: float, gigabytes: float
) -> None:
    step = evenly_routed()
    (stage,) = step.counted.stages
    distinct = step.distinct_experts(tokens)
    read = dense_bytes(step.counted) + stage.moe_layers * distinct * stage.expert_bytes
    assert distinct == pytest.approx(experts, abs=0.06)
    assert read / 1e9 == pytest.approx(gigabytes, rel=5e-4)


def test_one_expert_is_three_matrices_of_four_bits_and_their_scales() -> None:
    # 3 x 3584 x 3072 elements, half a byte each and one scale byte for 32 of them
    (stage,) = WHOLE.counted.stages
    assert stage.expert_bytes == 3 * 3584 * 3072 * (0.5 + 1 / 32) == 17_547_264


def test_a_rank_of_eight_reads_27_gigabytes_for_one_sequence() -> None:
    # (111.16 - 11.5 + 25.83) / 8 + 11.5: what every rank repeats is not divided
    (stage,) = TP8.counted.stages
    experts = stage.moe_layers * 16 * stage.expert_bytes
    assert (dense_bytes(TP8.counted) + experts) / 1e9 == pytest.approx(27.2, abs=0.05)


def test_a_token_costs_two_operations_for_each_of_104_billion_active_parameters() -> None:
    # 2 x 104.19: all text weights of a token with the head, the embedding and vision left out
    (stage,) = WHOLE.counted.stages
    flops = 2 * (stage.dense_params + stage.head_params) + stage.expert_flops
    assert flops / 1e9 == pytest.approx(208.4, abs=0.1)
    assert flops == pytest.approx(2 * 104.19e9, rel=2e-4)


@pytest.mark.parametrize(
    ("tp", "expected"),
    [
        (1, 449_372_160),  # 69 x (96 x 128 x 128 x 4 + 3 x 12,288 x 3 x 2)
        (8, 56_171_520),  # an eighth: heads are divided
        (16, 28_085_760),
    ],
)
def test_a_sequence_keeps_one_state_for_each_linear_layer(tp: int, expected: int) -> None:
    counted = case("kimi-k3", "roomy", tp=tp).counted
    assert sum(s.linear_layers for s in counted.stages) * counted.state_bytes == expected


def test_the_indexer_scores_a_pair_with_196_608_operations() -> None:
    # 24 layers x 2 x 32 heads x 128
    counted = SPARSE.counted
    assert sum(s.full_layers for s in counted.stages) * counted.index_pair_flops == 196_608
    assert counted.topk == 2048


def test_an_index_key_is_132_bytes_and_a_latent_1152() -> None:
    # 128 in 8 bits and one scale of 4 bytes; 512 + 64 of 2 bytes
    assert (SPARSE.counted.index_row_bytes, SPARSE.counted.latent_row_bytes) == (132, 1152)


def test_a_dense_model_has_no_index() -> None:
    assert (TP8.counted.topk, TP8.counted.index_pair_flops, TP8.counted.index_row_bytes) == (
        None,
        0,
        0,
    )


@pytest.mark.parametrize(
    ("tp", "absorbed", "plain"),
    [
        (1, 2 * 96 * (2 * 512 + 64), 2 * 96 * (128 + 64 + 128)),
        (8, 2 * 12 * (2 * 512 + 64), 2 * 12 * (128 + 64 + 128)),
    ],
)
def test_attention_costs_each_of_a_ranks_heads_its_width(
    tp: int, absorbed: int, plain: int
) -> None:
    counted = case("kimi-k3", "roomy", tp=tp).counted
    assert (counted.attention_pair_flops, counted.prefill_pair_flops) == (absorbed, plain)


@pytest.mark.parametrize("pp", [2, 3, 8])
def test_stages_of_a_pipeline_hold_the_whole_model_together(pp: int) -> None:
    whole, staged = WHOLE.counted, case("kimi-k3", "roomy", tp=1, pp=pp).counted
    for name in ("num_layers", "full_layers", "linear_layers", "moe_layers", "dense_bytes"):
        assert sum(getattr(stage, name) for stage in staged.stages) == pytest.approx(
            getattr(whole.stages[0], name)
        )
    assert sum(s.expert_flops for s in staged.stages) == pytest.approx(whole.stages[0].expert_flops)
    assert [bool(s.head_bytes) for s in staged.stages] == [False] * (pp - 1) + [True]


def test_decode_context_parallelism_divides_the_latents() -> None:
    assert case("kimi-k3", "8x-b300", tp=8, dcp=8).counted.latent_row_bytes == 1152 / 8


def test_the_vision_tower_is_what_the_configuration_says() -> None:
    # MoonViT-V2 401,214,464 and its projector 46,144,512
    assert WHOLE.counted.vision_params == 401_214_464 + 46_144_512


def test_a_model_without_experts_on_a_layer_counts_it_dense() -> None:
    assert model("kimi-k3").num_layers - WHOLE.counted.stages[0].moe_layers == 1
