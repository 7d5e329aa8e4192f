"""What a plan warns of."""

from dataclasses import replace

import pytest

from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.model import Published
from k31ctl.core.plan import plan
from tests.core.deployments import asked, parts, planned

FLASHMLA = "--attention-backend FLASHMLA"
QUANTISED_QUERY = "use_prefill_query_quantization"
TWO_NODES = {"node_id": "8x-h200", "nodes": 2, "kv_dtype": KvFormat.FP8}


@pytest.mark.parametrize(
    ("given", "flags"),
    [
        ({"kv_dtype": KvFormat.FP8}, {QUANTISED_QUERY}),
        (TWO_NODES, {FLASHMLA, QUANTISED_QUERY}),
        ({"model_id": "kimi-k2-instruct", **TWO_NODES}, {FLASHMLA}),
        ({"kv_dtype": KvFormat.BF16}, set()),
        ({"engine": "sglang", "kv_dtype": KvFormat.FP8}, set()),
        ({"model_id": "kimi-k3.1-pro", "kv_dtype": KvFormat.FP8}, set()),
    ],
)
def test_an_fp8_cache_names_the_flags_that_it_needs(
    given: dict[str, object], flags: set[str]
) -> None:
    told = " ".join(planned(**given).warnings)  # type: ignore[arg-type]
    assert {flag for flag in (FLASHMLA, QUANTISED_QUERY) if flag in told} == flags


@pytest.mark.parametrize(
    ("field", "off", "told"),
    [
        ("total_bytes", 5, "+5 bytes"),
        ("num_tensors", -1, "-1 tensors"),
        ("total_params", 10**9, "+1,000,000,000 parameters"),
    ],
)
def test_a_published_total_that_is_another_is_warned_of(field: str, off: int, told: str) -> None:
    usual = parts("kimi-k3", "8x-b300", "vllm")
    counted = plan(usual, asked()).inventory
    published = Published(
        num_tensors=counted.num_tensors,
        total_params=counted.total_params,
        total_bytes=counted.total_bytes,
        source="a test",
    )
    wrong = replace(published, **{field: getattr(published, field) + off})
    model = replace(usual.model, published=wrong)
    assert told in " ".join(plan(replace(usual, model=model), asked()).warnings)


def test_padding_that_a_publisher_counts_is_no_other_checkpoint() -> None:
    # hf-mem counts 69 layers x 32 padded heads of A_log: 2,208 parameters
    assert "differs from this inventory" not in " ".join(planned().warnings)
