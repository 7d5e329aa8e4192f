"""Single blocks against programs that we did not write."""

from typing import Any

import pytest
import torch
from torch import Tensor

from k31ctl.engine.blocks import kda_layer, latent_layer
from k31ctl.engine.config import Router
from k31ctl.engine.experts import route
from k31ctl.engine.kda import kda_chunked, kda_decay, kda_recurrent
from k31ctl.engine.latent_attention import index_scores, selected_mask
from k31ctl.engine.linear import situ
from k31ctl.engine.residual import residual_mix
from tests.engine.oracles import fla_naive_kda, oracle, transformers
from tests.engine.runs import error


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def kda_inputs(T: int, *, decay: float) -> tuple[Tensor, ...]:
    B, H, K, V = 2, 3, 32, 32
    q, k = (numbers(B, T, H, K, seed=s) for s in (1, 2))
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    g = -decay * torch.rand(B, T, H, K, generator=torch.Generator().manual_seed(4))
    beta = torch.sigmoid(numbers(B, T, H, seed=5))
    return q, k, numbers(B, T, H, V, seed=3), g, beta, numbers(B, H, K, V, seed=6)


@pytest.mark.parametrize("core", [kda_recurrent, kda_chunked])
@pytest.mark.parametrize("T", [1, 16, 50, 64, 200])
@pytest.mark.parametrize("decay", [0.1, 5.0, 60.0], ids=["slow", "bounded", "unbounded"])
def test_the_kda_core_is_that_of_fla(core: Any, T: int, decay: float) -> None:
    *inputs, state = kda_inputs(T, decay=decay)
    expected, last = fla_naive_kda().naive_recurrent_kda(
        *inputs, initial_state=state, output_final_state=True
    )
    memory = state.clone()
    assert error(core(*inputs, memory, scale=32**-0.5), expected) < 5e-6
    assert error(memory, last) < 5e-6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bound", [-5.0, None], ids=["bounded", "softplus"])
def test_the_decay_is_that_of_glm5_next(bound: float | None) -> None:
    found = transformers("transformers.models.glm5_next.modeling_glm5_next")
    sizes = {"linear_head_dim": 16, "linear_num_heads": 3, "linear_lower_bound": bound}
    config = type("Config", (), {"hidden_size": 24, **sizes})()
    gate = found.Glm5NextTextForgetGate(config)
    gate.dt_bias.data, gate.A_log.data = numbers(48, seed=1), numbers(3, seed=2)
    x = numbers(1, 9, 24, seed=3)
    with torch.no_grad():
        z = gate.f_b_proj(gate.f_a_proj(x)).view(1, 9, 3, 16) + gate.dt_bias.view(3, 16)
        assert error(kda_decay(z, gate.A_log, bound), gate(x)) < 1e-6


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("groups", [(1, 1), (4, 2)])
def test_the_router_is_that_of_transformers(groups: tuple[int, int]) -> None:
    found = transformers("transformers.models.kimi_linear.modeling_kimi_linear")
    names = {"num_experts_per_tok": 3, "num_local_experts": 16, "hidden_size": 24}
    names |= {"n_group": groups[0], "topk_group": groups[1], "norm_topk_prob": True}
    theirs = found.KimiLinearTopkRouter(
        type("Config", (), {**names, "routed_scaling_factor": 2.446})()
    )
    x, gate, bias = numbers(40, 24), numbers(16, 24, seed=1), 0.3 * numbers(16, seed=2)
    theirs.weight.data, theirs.e_score_correction_bias.data = gate, bias
    router = Router(
        num_experts=16,
        num_chosen=3,
        num_groups=groups[0],
        num_chosen_groups=groups[1],
        renormalised=True,
        scale=2.446,
    )
    expert, weight = route(x, gate, bias, router)
    with torch.no_grad():
        _, their_weight, their_expert = theirs(x)
    spread, their_spread = (
        torch.zeros(40, 16).scatter(-1, e, w)
        for e, w in ((expert, weight), (their_expert, their_weight))
    )
    assert error(spread, their_spread) < 1e-6


def test_situ_is_that_of_mlx() -> None:
    mx, module = oracle("mlx.core"), oracle("mlx_lm.models.kimi_k3")
    gate, up = 9 * numbers(50, seed=1), 60 * numbers(50, seed=2)
    theirs = module._situ(mx.array(up.tolist()), mx.array(gate.tolist()), 4.0, 25.0)
    found = situ(gate, up, gate_bound=4.0, up_bound=25.0)
    assert error(found, torch.tensor(theirs.tolist())) < 1e-6


@pytest.mark.parametrize("num_snapshots", [1, 3, 8])
def test_the_residual_mix_is_that_of_mlx(num_snapshots: int) -> None:
    mx, module = oracle("mlx.core"), oracle("mlx_lm.models.kimi_k3")
    rows = numbers(5, num_snapshots + 1, 48)
    norm, proj = 1 + 0.1 * numbers(48, seed=1), 0.2 * numbers(48, seed=2)
    blocks = module.ResidualBlocks(1e-5)
    for i in range(num_snapshots):
        blocks.append(mx.array(rows[:, i].tolist()))
    weight, live = mx.array((norm * proj).tolist()), mx.array(rows[:, -1].tolist())
    theirs = module._attn_res_mix(blocks, live, weight, 1e-5, use_kernel=False)
    found = residual_mix(rows, norm * proj, 1e-5)
    assert error(found, torch.tensor(theirs.tolist())) < 1e-6


def latent_tensors(*, gated: bool) -> dict[str, Tensor]:
    """H 4, N 16, P 8, V 12, Q 20, R 24, width 40; index heads 8 of 16."""
    shapes = {
        **{"q_a_proj": (20, 40), "q_a_layernorm": (20,), "q_b_proj": (96, 20)},
        **{"kv_a_proj_with_mqa": (32, 40), "kv_a_layernorm": (24,), "kv_b_proj": (112, 24)},
        **{"o_proj": (40, 48), "indexer.wq_b": (128, 20), "indexer.wk": (16, 40)},
        **{"indexer.weights_proj": (8, 40), "indexer.k_norm": (16,)},
    }
    if gated:
        shapes["g_proj"] = (48, 40)
    found = {}
    for seed, (name, shape) in enumerate(shapes.items()):
        spread = shape[-1] ** -0.5 if len(shape) > 1 else 0.1
        found[f"{name}.weight"] = spread * numbers(*shape, seed=seed) + (len(shape) == 1)
    return found | {"indexer.k_norm.bias": 0.1 * numbers(16, seed=99)}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("absorbed", [False, True], ids=["expanded", "absorbed"])
@pytest.mark.parametrize("topk", [7, 64])
def test_sparse_attention_is_that_of_deepseek_v32_without_rotation(
    topk: int, *, absorbed: bool
) -> None:
    found = transformers("transformers.models.deepseek_v32.modeling_deepseek_v32")
    settings = transformers("transformers").DeepseekV32Config(
        hidden_size=40,
        num_attention_heads=4,
        num_key_value_heads=4,
        q_lora_rank=20,
        kv_lora_rank=24,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=12,
        index_n_heads=8,
        index_head_dim=16,
        index_topk=topk,
        attn_implementation="eager",
    )
    theirs, tensors = found.DeepseekV32Attention(settings, 0).eval(), latent_tensors(gated=False)
    theirs.load_state_dict(tensors)
    x, T = numbers(1, 30, 40, seed=50), 30
    still = (torch.ones(1, T, 8), torch.zeros(1, T, 8))
    mask = torch.full((T, T), -torch.inf).triu(1)[None, None]
    with torch.no_grad():
        expected, _ = theirs(x, still, mask)
        out, _ = latent_layer(
            x[0], tensors, num_heads=4, index_topk=topk, index_norm_eps=1e-6, absorbed=absorbed
        )
    assert error(out, expected[0]) < 5e-6


@pytest.mark.parametrize("absorbed", [False, True], ids=["expanded", "absorbed"])
def test_one_more_token_attends_as_in_the_whole_prompt(*, absorbed: bool) -> None:
    tensors, x = latent_tensors(gated=True), numbers(31, 40, seed=51)
    whole, _ = latent_layer(x, tensors, num_heads=4, index_topk=7)
    _, seen = latent_layer(x[:30], tensors, num_heads=4, index_topk=7)
    last, _ = latent_layer(
        x[30:], tensors, num_heads=4, index_topk=7, absorbed=absorbed, memory=seen
    )
    assert error(last, whole[30:]) < 1e-5


@pytest.mark.filterwarnings("ignore")
def test_the_choice_of_tokens_is_that_of_glm5_next_with_pools_of_one() -> None:
    found = transformers("transformers.models.glm5_next.modeling_glm5_next")
    sizes = {"hidden_size": 40, "index_n_heads": 8, "index_head_dim": 16, "index_topk": 7}
    more = {"qk_rope_head_dim": 0, "q_lora_rank": 20, "index_kpool": 1}
    config = type("Config", (), {**sizes, **more, "index_kpool_always_select_tail": False})()
    theirs, x, low = found.Glm5NextTextIndexer(config, 0), numbers(1, 30, 40), numbers(1, 30, 20)
    with torch.no_grad():
        chosen = theirs(x, low, torch.ones(1, 30, dtype=torch.bool), None)[0].long()
        query, key = theirs.wq_b(low)[0].view(30, 8, 16), theirs.k_norm(theirs.wk(x))[0]
        mask = selected_mask(index_scores(query, theirs.weights_proj(x)[0], key), topk=7)
    rows = [{token for token in row if token >= 0} for row in chosen.tolist()]
    ours = [set(row.nonzero().flatten().tolist()) for row in mask]
    assert [row & set(range(t + 1)) for t, row in enumerate(rows)] == ours
    assert len(ours[29]) == 7


@pytest.mark.parametrize("pieces", [(30,), (1,) * 30, (9, 1, 20), (2, 28)])
def test_a_gated_sparse_layer_in_pieces_is_the_layer_at_once(pieces: tuple[int, ...]) -> None:
    tensors, x = latent_tensors(gated=True), numbers(30, 40, seed=50)
    whole, memory = latent_layer(x, tensors, num_heads=4, index_topk=7)
    out, seen, start = [], None, 0
    for length in pieces:
        part = x[start : start + length]
        said, seen = latent_layer(part, tensors, num_heads=4, index_topk=7, memory=seen)
        out.append(said)
        start += length
    assert error(torch.cat(out), whole) < 5e-6
    assert seen is not None
    assert [list(part.shape) for part in seen] == [[30, 32], [30, 16]]
    assert error(seen[0], memory[0]) < 5e-6


def test_the_index_key_norm_may_come_without_a_bias_and_its_query_from_the_input() -> None:
    tensors, x = latent_tensors(gated=True), numbers(12, 40)
    tensors["indexer.k_norm.bias"].zero_()
    with_bias, _ = latent_layer(x, tensors, num_heads=4, index_topk=5)
    del tensors["indexer.k_norm.bias"]
    without, _ = latent_layer(x, tensors, num_heads=4, index_topk=5)
    assert torch.equal(with_bias, without)
    tensors["indexer.wq_b.weight"] = numbers(128, 40, seed=7)
    other, _ = latent_layer(x, tensors, num_heads=4, index_topk=5)
    assert not torch.equal(other, without)


@pytest.mark.parametrize("full_rank", [True, False])
def test_a_kda_layer_in_pieces_is_the_layer_at_once(*, full_rank: bool) -> None:
    names = {f"{n}_proj.weight": numbers(64, 40, seed=i) / 6 for i, n in enumerate("qkv")}
    names |= {f"{n}_conv1d.weight": numbers(64, 1, 4, seed=i) for i, n in enumerate("qkv")}
    names |= {"f_a_proj.weight": numbers(16, 40), "f_b_proj.weight": numbers(64, 16)}
    names |= {"b_proj.weight": numbers(4, 40), "o_proj.weight": numbers(40, 64) / 8}
    names |= {"o_norm.weight": torch.ones(16), "dt_bias": numbers(64), "A_log": torch.zeros(128)}
    low = {"g_a_proj.weight": numbers(16, 40), "g_b_proj.weight": numbers(64, 16)}
    names |= {"g_proj.weight": numbers(64, 40)} if full_rank else low
    x = numbers(90, 40, seed=8)
    whole, (conv, state) = kda_layer(x, names, eps=1e-5, decay_bound=-5.0)
    out, memory = [], None
    for part in x.split([1, 2, 60, 1, 26]):
        said, memory = kda_layer(part, names, eps=1e-5, decay_bound=-5.0, memory=memory)
        out.append(said)
    assert error(torch.cat(out), whole) < 5e-6
    assert memory is not None
    assert error(memory[0], conv) < 5e-6
    assert error(memory[1], state) < 5e-6
