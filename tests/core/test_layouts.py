"""Which layouts engines refuse, by which rule, and what is offered instead."""

from typing import Any

import pytest

from k31ctl.core.kv_cache import KvFormat
from k31ctl.errors import RefusedError, UsageError
from tests.core.deployments import planned


@pytest.mark.parametrize(
    ("engine", "node", "sizes", "rule", "offered"),
    [
        ("vllm", "8x-b300", {"tp": 16}, "layout-world", "--tp 8"),
        ("vllm", "8x-b300", {"tp": 5}, "layout-heads", "--tp 4"),
        ("vllm", "8x-b300", {"tp": 8, "ep": 4}, "layout-expert-parallel", "--tp 8 --ep 8"),
        ("vllm", "8x-b300", {"tp": 8, "dcp": 3}, "layout-context-parallel", "--tp 8"),
        ("sglang", "8x-b300", {"tp": 8, "dp": 3}, "layout-attention-dp", "--tp 8 --dp 4"),
        ("sglang", "8x-b300", {"tp": 8, "ep": 3}, "layout-expert-parallel", "--tp 8 --ep"),
        ("tokenspeed", "8x-b300", {"tp": 4, "pp": 2}, "layout-pipeline", "--tp 8"),
        ("tokenspeed", "8x-b300", {"tp": 8, "ep": 4}, "layout-expert-parallel", "--tp 8 --ep 8"),
        ("tokenspeed", "4x-gb200", {"nodes": 4, "ep": 16}, "layout-expert-parallel", "--tp 16"),
        ("tensorrt-llm", "8x-b300", {"tp": 8, "ep": 1}, "layout-expert-parallel", "--ep 8"),
        ("embedded", "8x-b300", {"nodes": 2}, "layout-one-node", "--nodes"),
        ("embedded", "8x-b300", {"tp": 1, "pp": 8, "dcp": 2}, "layout-context-parallel", "--pp 8"),
    ],
)
def test_a_layout_that_the_engine_refuses_is_refused_by_its_rule(
    engine: str, node: str, sizes: dict[str, Any], rule: str, offered: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        planned("kimi-k3", node, engine, **sizes)
    assert refused.value.rule == rule
    assert offered in refused.value.remedy


@pytest.mark.parametrize("tp", [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96])
def test_every_divisor_of_the_heads_is_a_tensor_parallel_size(tp: int) -> None:
    assert planned("kimi-k3", "roomy", tp=tp).layout.tp == tp


@pytest.mark.parametrize("tp", [5, 7, 9, 10, 64])
def test_no_other_size_is(tp: int) -> None:
    with pytest.raises(RefusedError, match="heads"):
        planned("kimi-k3", "roomy", tp=tp)


@pytest.mark.parametrize(
    ("node", "nodes", "engine", "layout"),
    [
        ("8x-b300", 1, "vllm", "TP8"),
        ("8x-b200", 2, "vllm", "TP8xPP2"),
        ("8x-h200", 2, "vllm", "TP8xPP2"),
        ("4x-gb300", 2, "vllm", "TP8"),
        ("4x-gb200", 4, "vllm", "TP16"),
        ("8x-b200", 2, "sglang", "TP16"),
        ("8x-h100", 4, "sglang", "TP32"),
        ("8x-b300", 1, "embedded", "PP8"),
        ("8x-b300", 1, "tensorrt-llm", "TP8xEP8"),
        ("gb300-nvl72", 1, "vllm", "TP8xDP9xEP72"),
    ],
)
def test_without_sizes_the_engines_usual_layout_is_planned(
    node: str, nodes: int, engine: str, layout: str
) -> None:
    assert planned("kimi-k3", node, engine, nodes=nodes).layout.text == layout


@pytest.mark.parametrize(
    ("model", "engine"),
    [
        ("kimi-k3.1-pro", "vllm@0.33.0"),
        ("kimi-k3.1-pro", "sglang@0.5.23"),
        ("kimi-k3.1-pro", "tokenspeed"),
        ("kimi-k3.1-pro", "tensorrt-llm"),
    ],
)
def test_no_release_reads_k31_pro(model: str, engine: str) -> None:
    with pytest.raises(RefusedError) as refused:
        planned(model, engine=engine)
    assert refused.value.rule == "engine-architecture"


@pytest.mark.parametrize(("engine", "chosen"), [("vllm", "main"), ("sglang", "kimi-k31-pro")])
def test_k31_pro_without_a_version_goes_to_the_branch_that_reads_it(
    engine: str, chosen: str
) -> None:
    plan = planned("kimi-k3.1-pro", engine=engine)
    assert plan.parts.engine.version == chosen
    assert any("not a pinned release" in warning for warning in plan.warnings)


def test_sparse_attention_is_refused_on_workstation_gpus() -> None:
    with pytest.raises(RefusedError) as refused:
        planned("kimi-k3.1-pro", "8x-rtx-pro-6000", nodes=4)
    assert refused.value.rule == "engine-sparse-gpu"


def test_tensorrt_llm_is_refused_off_blackwell() -> None:
    with pytest.raises(RefusedError) as refused:
        planned("kimi-k3", "8x-h200", "tensorrt-llm", nodes=2)
    assert refused.value.rule == "engine-gpu"


@pytest.mark.parametrize(
    ("engine", "kv_dtype"),
    [("tensorrt-llm", KvFormat.FP8), ("vllm", KvFormat.FP8_DS_MLA), ("embedded", KvFormat.FP8)],
)
def test_a_cache_type_that_the_engine_does_not_keep_is_refused(
    engine: str, kv_dtype: KvFormat
) -> None:
    with pytest.raises(RefusedError, match=r"rows|cache"):
        planned("kimi-k3", engine=engine, kv_dtype=kv_dtype)


def test_a_draft_is_refused_under_pipeline_parallelism() -> None:
    with pytest.raises(RefusedError, match="pipeline"):
        planned("kimi-k3", "8x-h200", nodes=2, draft="inferact-k3-dspark")


@pytest.mark.parametrize("sizes", [{"tp": 0}, {"pp": -1}, {"nodes": 10**9}])
def test_sizes_that_cannot_be_are_a_usage_error(sizes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        planned("kimi-k3", **sizes)


def test_a_draft_made_for_another_engine_is_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        planned("kimi-k3", engine="sglang", draft="inferact-k3-dspark")
    assert refused.value.rule == "draft-engine"


def test_a_draft_trained_for_another_model_is_warned_of() -> None:
    plan = planned("kimi-k3.1-pro", draft="inferact-k3-dspark")
    assert any("trained for kimi-k3" in warning for warning in plan.warnings)
