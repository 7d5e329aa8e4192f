"""Kimi K3.1 with an engine's branch: sparse kernels and the rows of cache that they read."""

from typing import Any

import pytest

from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.rules import Severity
from k31ctl.serve.asked import Target
from k31ctl.serve.launch_files import launch_files, rollout
from k31ctl.serve.own_findings import own_findings
from k31ctl.serve.rollout import Rollout, Standing
from tests.core.catalogs import CATALOGS
from tests.serve.launches import NOWHERE, STORE, asked, launch, parts

K31 = "kimi-k3.1-pro"
BRANCH = {"vllm": "vllm@main", "sglang": "sglang@kimi-k31-pro"}
KV, BACKEND = "--kv-cache-dtype", "--attention-backend"
PREFILL, DECODE = "--dsa-prefill-backend", "--dsa-decode-backend"


def sparse(engine: str, on: str, nodes: int, kv: KvFormat | None) -> Rollout:
    return launch(
        K31, BRANCH[engine], on, nodes=nodes, kv_dtype=kv, image="registry.example/engine:1"
    )


def flags(made: Rollout) -> dict[str, Any]:
    (server,) = made.servers
    return {choice.flag: choice.value for choice in server.choices}


# The kernels that SGLang 0.5.23 chooses by itself for DeepSeek-V3.2 (arg_groups/overrides.py), and
# the types of cache that vLLM 0.33.0's sparse kernels declare (v1/attention/backends/mla).
@pytest.mark.parametrize(
    ("engine", "on", "nodes", "kv", "expected"),
    [
        ("sglang", "8x-b300", 1, None, {KV: "fp8_e4m3", PREFILL: "trtllm", DECODE: "trtllm"}),
        (
            "sglang",
            "8x-h200",
            2,
            None,
            {KV: "fp8_e4m3", PREFILL: "flashmla_kv", DECODE: "flashmla_kv"},
        ),
        (
            "sglang",
            "8x-b300",
            1,
            KvFormat.BF16,
            {KV: "bf16", PREFILL: "flashmla_sparse", DECODE: "trtllm"},
        ),
        ("sglang", "8x-mi355x", 1, None, {PREFILL: "triton", DECODE: "triton"}),
        ("vllm", "8x-b300", 1, None, {KV: "fp8_ds_mla", BACKEND: "FLASHMLA_SPARSE"}),
        ("vllm", "8x-b300", 1, KvFormat.FP8, {KV: "fp8", BACKEND: "FLASHINFER_MLA_SPARSE"}),
        (
            "vllm",
            "8x-h200",
            2,
            KvFormat.FP8,
            {KV: "fp8_ds_mla", BACKEND: "FLASHMLA_SPARSE"},
        ),
        ("vllm", "8x-b300", 1, KvFormat.BF16, {KV: "bfloat16", BACKEND: "FLASHMLA_SPARSE"}),
        ("vllm", "8x-mi355x", 1, None, {BACKEND: "ROCM_AITER_MLA_SPARSE"}),
    ],
)
def test_sparse_kernels_read_the_rows_that_are_written(
    engine: str, on: str, nodes: int, kv: KvFormat | None, expected: dict[str, str]
) -> None:
    made = sparse(engine, on, nodes, kv)
    found = flags(made)
    assert {flag: found[flag] for flag in expected} == expected
    known = {flag.name for flag in CATALOGS[engine].flags}
    assert set(found) <= known
    standing = {c.flag: c.standing for c in made.servers[0].choices}
    assert {standing[flag] for flag in (PREFILL, DECODE, BACKEND) if flag in standing} == {
        Standing.UNVERIFIED
    }
    assert any("unverified" in warning for warning in made.warnings)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("target", [Target.SHELL, Target.COMPOSE, Target.KUBERNETES])
def test_no_check_finds_an_error_in_it(engine: str, target: Target) -> None:
    gathered = parts(K31, BRANCH[engine])
    made = rollout(gathered, asked(target=target, image="registry.example/engine:1"), NOWHERE)
    found = own_findings(STORE, gathered, launch_files(made, target), made)
    assert [f.message for f in found if f.severity is Severity.ERROR] == []


def test_a_container_that_has_a_command_of_its_own_is_told() -> None:
    image = "nvcr.io/nim/moonshotai/kimi:2.1.6-variant-kimi-k3.1-pro"
    made = launch(K31, "vllm@0.33.0", target=Target.COMPOSE, image=image)
    assert f"{image} is a NIM container: the command here takes the place of its own" in (
        made.warnings
    )
    assert made.image == image


def test_the_rows_that_are_written_are_those_that_are_counted() -> None:
    for engine, on, nodes, kv, rows in (
        ("vllm", "8x-b300", 1, None, KvFormat.FP8_DS_MLA),
        ("vllm", "8x-b300", 1, KvFormat.FP8, KvFormat.FP8),
        ("sglang", "8x-b300", 1, None, KvFormat.FP8),
        ("sglang", "8x-h200", 2, None, KvFormat.FP8_DS_MLA),
    ):
        assert sparse(engine, on, nodes, kv).servers[0].plan.rows.kv_format is rows
