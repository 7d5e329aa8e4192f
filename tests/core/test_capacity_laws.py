"""Laws that hold for every layout, length and pool, and a closed form that cells must meet."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.layout import stage_bounds
from k31ctl.core.tensors import Group, Shard
from tests.core.deployments import GIB, model, planned

MODELS = ("kimi-k3", "kimi-k3.1-pro", "kimi-linear-48b", "deepseek-v3.2", "kimi-k2.5")
ENGINES = ("vllm", "sglang")
TP_OF_K3 = (1, 2, 4, 8, 16, 32)


@given(
    model_id=st.sampled_from(MODELS),
    engine=st.sampled_from(ENGINES),
    pool=st.integers(GIB, 400 * GIB),
    more=st.integers(0, 100 * GIB),
    context=st.integers(1, 40_000),
)
def test_a_larger_pool_never_holds_fewer(
    model_id: str, engine: str, pool: int, more: int, context: int
) -> None:
    small, large = (
        planned(model_id, "roomy", engine, tp=8, kv_memory_bytes=size, contexts=(context,))
        for size in (pool, pool + more)
    )
    assert small.cell.max_requests <= large.cell.max_requests
    assert small.capacity.kv_cache_tokens <= large.capacity.kv_cache_tokens


@given(
    model_id=st.sampled_from(MODELS),
    engine=st.sampled_from(ENGINES),
    context=st.integers(1, 100_000),
    more=st.integers(0, 50_000),
    batch=st.integers(1, 64),
)
def test_more_context_never_needs_less(
    model_id: str, engine: str, context: int, more: int, batch: int
) -> None:
    plan = planned(
        model_id, "roomy", engine, tp=8, contexts=(context, context + more), batches=(batch,)
    )
    short, long = plan.cells
    assert short.kv_cache_bytes <= long.kv_cache_bytes
    assert short.max_requests >= long.max_requests
    assert short.free_bytes >= long.free_bytes


@given(
    tp=st.sampled_from(TP_OF_K3),
    pp=st.sampled_from((1, 2, 3)),
    model_id=st.sampled_from(("kimi-k3", "kimi-k3.1-pro")),
)
def test_the_ranks_together_hold_at_least_the_checkpoint(tp: int, pp: int, model_id: str) -> None:
    plan = planned(model_id, "roomy", tp=tp, pp=pp)
    assert sum(tp * stage.total_bytes for stage in plan.weights) >= plan.inventory.total_bytes


@given(tp=st.sampled_from(TP_OF_K3[1:]))
def test_sharded_parts_scale_with_one_over_tp_and_replicated_parts_do_not(tp: int) -> None:
    alone = planned("kimi-k3", "roomy", tp=1, pp=1).weights[0]
    shared = planned("kimi-k3", "roomy", tp=tp, pp=1).weights[0]
    for shard in Shard:
        ways = 1 if shard is Shard.REPLICATED else tp
        part = shared.by_shard[shard] - (shared.padding_bytes if shard is Shard.EXPERT else 0)
        assert part == pytest.approx(alone.by_shard[shard] / ways, rel=1e-6)


@given(pp=st.integers(1, 93), tp=st.sampled_from((1, 8)))
def test_stages_hold_every_layer_once_and_differ_by_one_at_most(pp: int, tp: int) -> None:
    layout = planned("kimi-k3", "roomy", tp=tp, pp=min(pp, 96 // tp)).layout
    bounds = stage_bounds(93, layout)
    assert [first for first, _ in bounds[1:]] == [end for _, end in bounds[:-1]]
    assert (bounds[0][0], bounds[-1][1]) == (0, 93)
    sizes = [end - first for first, end in bounds]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("model_id", MODELS)
def test_pipeline_stages_add_up_to_the_one_stage(model_id: str) -> None:
    whole = planned(model_id, "roomy", tp=8, pp=1).weights[0].total_bytes
    staged = sum(s.total_bytes for s in planned(model_id, "roomy", tp=8, pp=2).weights)
    assert staged == pytest.approx(whole, rel=1e-6)


def test_the_replicated_set_of_kimi_k3_is_that_of_the_ledger() -> None:
    # model facts: q_a and kv_a, latent MoE, router, f_a, vision, norms
    weights = planned("kimi-k3", tp=8).weights[0]
    assert weights.by_shard[Shard.REPLICATED] / 1e9 == pytest.approx(12.393, abs=0.001)


def test_prediction_layers_are_not_loaded() -> None:
    v32 = model("deepseek-v3.2")
    loaded = planned("deepseek-v3.2", "roomy", tp=1).weights[0].total_bytes
    mtp = sum(t.total_bytes for t in v32.templates if t.group is Group.MTP)
    assert loaded == sum(t.total_bytes for t in v32.templates) - mtp


@pytest.mark.parametrize("context", [8_192, 131_072, 1_048_576])
@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("tp", [8, 16])
@pytest.mark.parametrize("pp", [1, 2])
@pytest.mark.parametrize(("kv_dtype", "element_bytes"), [(KvFormat.BF16, 2), (KvFormat.FP8, 1)])
@pytest.mark.parametrize("dcp", [1, 8])
def test_cells_meet_the_closed_form(
    context: int, batch: int, tp: int, pp: int, kv_dtype: KvFormat, element_bytes: int, dcp: int
) -> None:
    plan = planned(
        "kimi-k3",
        "roomy",
        tp=tp,
        pp=pp,
        dcp=dcp,
        kv_dtype=kv_dtype,
        contexts=(context,),
        batches=(batch,),
    )
    # full layers 3, 7, ..., 91 and 92; vLLM's stage 0 of two holds layers 0 to 46
    full, linear = {(1, 0): (24, 69), (2, 0): (11, 36), (2, 1): (13, 33)}[pp, plan.cell.stage]
    assert plan.cell.kv_cache_bytes == batch * context * full * 576 * element_bytes // dcp
    state = linear * (96 // tp * 128 * 128 * 4 + 3 * 12_288 // tp * 3 * 2)
    assert plan.cell.state_bytes == batch * state


@settings(max_examples=30)
@given(
    model_id=st.sampled_from(MODELS),
    engine=st.sampled_from(ENGINES),
    context=st.integers(1, 130_000),
    batch=st.integers(1, 300),
)
def test_the_lines_of_a_gpu_add_up_to_its_memory(
    model_id: str, engine: str, context: int, batch: int
) -> None:
    plan = planned(model_id, "8x-b300", engine, contexts=(context,), batches=(batch,))
    cell, stage = plan.cell, plan.stages[plan.tightest]
    total = stage.fixed_bytes + cell.kv_cache_bytes + cell.state_bytes + cell.free_bytes
    assert total == stage.capacity_bytes == plan.parts.node.gpu.memory_bytes


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tokenspeed"])
@given(context=st.integers(1, 1_048_576), pool=st.integers(GIB, 100 * GIB))
def test_as_many_as_fit_do_fit_and_one_more_does_not(engine: str, context: int, pool: int) -> None:
    most = planned(
        "kimi-k3", engine=engine, contexts=(context,), kv_memory_bytes=pool
    ).cell.max_requests
    plan = planned(
        "kimi-k3",
        engine=engine,
        contexts=(context,),
        batches=(max(1, most), most + 1),
        kv_memory_bytes=pool,
    )
    weights = plan.weights[0].total_bytes
    loads = weights + pool <= plan.parts.node.gpu.memory_bytes
    assert plan.cells[0].fits == (most >= 1 and loads)
    assert not plan.cells[1].fits
