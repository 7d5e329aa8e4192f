"""The document of a plan: what adds up, what agrees, what the shipped schema refuses."""

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

import k31ctl
from k31ctl.core.offload import Tier
from k31ctl.core.plan import Plan
from k31ctl.report.plan_document import LINE_KEYS, ROW_KEYS, document, result
from k31ctl.report.plan_table import as_csv, as_markdown
from tests.core.deployments import planned

FILE = Path(k31ctl.__file__).parent / "schemas" / "plan.v1.schema.json"
SCHEMA = json.loads(FILE.read_text())
ASKED_KEYS = ("kv_cache_bytes", "state_bytes", "free_bytes")
PLANS: Mapping[str, Mapping[str, Any]] = {
    "usual": {},
    "sweep": {"contexts": (8_192, 131_072), "batches": (1, 64)},
    "stages": {"node_id": "8x-h200", "nodes": 2, "tp": 8, "pp": 2},
    "too-large": {"node_id": "8x-h200"},
    "draft-and-lora": {"draft": "inferact-k3-dspark", "lora_rank": 16, "image": (1920, 1080)},
    "all-experts-stay": {"offload": Tier.HOST, "resident_experts": 896},
    "few-experts-stay": {"offload": Tier.NVME, "resident_experts": 64},
}


@pytest.fixture(params=sorted(PLANS))
def plan(request: pytest.FixtureRequest) -> Plan:
    return planned(**PLANS[request.param])


def shown(found: Plan) -> dict[str, Any]:
    text: dict[str, Any] = json.loads(document(found, ()))
    return text


def test_the_schema_is_itself_valid() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_every_document_meets_the_schema(plan: Plan) -> None:
    Draft202012Validator(SCHEMA).validate(shown(plan))


@pytest.mark.parametrize("name", SCHEMA["$defs"]["result"]["required"])
def test_a_result_without_a_promised_name_is_refused(name: str) -> None:
    broken = deepcopy(shown(planned()))
    del broken["result"][name]
    with pytest.raises(ValidationError, match=name):
        Draft202012Validator(SCHEMA).validate(broken)


def test_a_number_written_as_text_is_refused() -> None:
    broken = shown(planned())
    broken["result"]["memory"]["per_gpu"]["free_bytes"] = "1 GiB"
    with pytest.raises(ValidationError, match="1 GiB"):
        Draft202012Validator(SCHEMA).validate(broken)


def test_the_lines_and_what_is_left_add_up_to_the_capacity(plan: Plan) -> None:
    per_gpu = result(plan)["memory"]["per_gpu"]
    assert sum(per_gpu[key] for key in (*LINE_KEYS, *ASKED_KEYS)) == per_gpu["capacity_bytes"]
    assert set(per_gpu) == {"capacity_bytes", *LINE_KEYS, *ASKED_KEYS}


def test_the_lines_with_a_source_are_those_of_the_tightest_stage(plan: Plan) -> None:
    memory = result(plan)["memory"]
    stage = memory["stages"][memory["stage"]]
    assert sum(line["bytes"] for line in memory["lines"]) == sum(stage[key] for key in LINE_KEYS)
    assert all(line["basis"] and line["source"] for line in memory["lines"])


def test_every_stage_has_its_weights_and_together_they_have_all_layers(plan: Plan) -> None:
    found = result(plan)
    stages = found["memory"]["stages"]
    assert len(stages) == len(found["weights"]["per_rank_bytes"]) == found["layout"]["pp"]
    assert stages[-1]["end_layer"] == plan.parts.model.num_layers


def test_a_token_costs_its_latents_and_its_index_keys() -> None:
    cache = result(planned("kimi-k3.1-pro"))["cache"]
    # 24 layers; a latent of 512 + 64 in bf16, an index key of 128 in fp8 with one fp32 scale
    assert cache["latent_bytes_per_token"] == 24 * 2 * (512 + 64)
    assert cache["indexer_bytes_per_token"] == 24 * (128 + 4)
    assert cache["bytes_per_token"] == 24 * (2 * (512 + 64) + 128 + 4)


def test_the_budget_is_that_of_the_first_cell_asked_for() -> None:
    found = result(planned(contexts=(8_192, 131_072), batches=(4,)))
    first, per_gpu = found["sweep"][0], found["memory"]["per_gpu"]
    assert (first["context_tokens"], first["batch"]) == (8_192, 4)
    assert {key: first[key] for key in per_gpu} == per_gpu


def test_one_cell_is_no_sweep() -> None:
    assert "sweep" not in result(planned())


def test_what_was_not_asked_is_null() -> None:
    found = result(planned())
    assert (found["offload"], found["finetune"], found["image"]) == (None, None, None)


def test_nothing_limits_the_rate_where_no_expert_moves() -> None:
    offload = shown(planned(offload=Tier.HOST, resident_experts=896))["result"]["offload"]
    assert (offload["offloaded_bytes"], offload["max_tok_s"]) == (0, None)


def test_the_csv_has_the_names_and_numbers_of_the_sweep() -> None:
    plan = planned(contexts=(8_192, 131_072), batches=(1, 2))
    head, *rows = as_csv(plan).splitlines()
    assert head == ",".join(ROW_KEYS)
    kept = [[str(value).lower() for value in row.values()] for row in result(plan)["sweep"]]
    assert [row.split(",") for row in rows] == kept


def test_markdown_has_a_row_for_every_cell_and_every_line() -> None:
    plan = planned(contexts=(8_192, 131_072), batches=(1, 2))
    rows = [line for line in as_markdown(plan).splitlines() if line.startswith("| ")]
    assert len(rows) == len(plan.cells) + len(plan.lines) + len(("head of cells", "head of lines"))
