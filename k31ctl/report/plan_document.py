"""A plan as one JSON document: plain numbers under the names that others rely on."""

from dataclasses import fields
from math import isinf
from typing import TYPE_CHECKING, Any

from k31ctl.core.asked_deployment import AskedDeployment
from k31ctl.core.capacity import StageCache
from k31ctl.core.cost import Cost
from k31ctl.core.costing import Unpriced
from k31ctl.core.gates import GateResult
from k31ctl.core.layout import Layout
from k31ctl.core.memory import StageMemory
from k31ctl.core.offload import Offload
from k31ctl.core.performance import Performance
from k31ctl.core.plan import Cell, Plan
from k31ctl.report.cost_document import cost_document
from k31ctl.report.envelope import envelope
from k31ctl.report.further import further_document
from k31ctl.report.speed_document import (
    CELL_KEYS,
    cell_document,
    curve_document,
    performance_document,
    simulation_document,
)

if TYPE_CHECKING:
    from k31ctl.core.further import Further

LINE_KEYS = (
    "weights_bytes",
    "activations_bytes",
    "graphs_bytes",
    "workspace_bytes",
    "communication_bytes",
    "vision_bytes",
    "context_bytes",
    "draft_bytes",
    "finetune_bytes",
)
ASKED_KEYS = (
    "kv_dtype",
    "index_dtype",
    "state_dtype",
    "draft_tokens",
    "replay_ssm",
    "state_slots",
    "chunk_tokens",
    "memory_fraction",
    "state_ratio",
    "lora_rank",
    "offload",
    "resident_experts",
)
ROW_KEYS = (
    "context_tokens",
    "batch",
    "fits",
    "max_requests",
    "stage",
    "capacity_bytes",
    *LINE_KEYS,
    "kv_cache_bytes",
    "state_bytes",
    "free_bytes",
    *CELL_KEYS,
)


def document(
    plan: Plan,
    gates: tuple[GateResult, ...],
    beside: "Further | None" = None,
    asked: AskedDeployment | None = None,
) -> str:
    """The whole document as text; ``asked`` is what makes its deployment again."""
    return envelope(
        "plan",
        inputs=_inputs(plan) | ({} if asked is None else {"deployment": asked}),
        result=result(plan, beside)
        | {
            "gates": [
                {"gate": g.gate, "actual": float(g.actual), "passed": g.passed} for g in gates
            ]
        },
        assumptions=plan.assumptions,
        warnings=plan.warnings,
    )


def result(plan: Plan, beside: "Further | None" = None) -> dict[str, Any]:
    """The result by its names; what gates are held against."""
    found = {
        "fits": plan.fits,
        **_deployment(plan),
        "weights": _weights(plan),
        "memory": _memory(plan),
        "cache": _cache(plan),
        "capacity": _capacity(plan),
        "concurrency": [
            {"context_tokens": context, "max_requests": most} for context, most in plan.ladder
        ],
        "longest_context_tokens": plan.longest_context,
        "remedies": plan.remedies,
        "offload": _offload(plan.offload),
        "finetune": plan.finetune,
        "image": plan.image,
        "performance": performance_document(plan.speed.performance),
        "performance_why_not": plan.speed.why_not,
        "curve": curve_document(plan.speed),
        "simulation": simulation_document(plan.speed),
        "cost": cost_document(plan.cost_usd) if isinstance(plan.cost_usd, Cost) else None,
        "cost_why_not": plan.cost_usd.what if isinstance(plan.cost_usd, Unpriced) else "",
    }
    if beside is not None:
        found |= further_document(beside)
    if len(plan.cells) > 1:
        found["sweep"] = [
            row(plan, cell, speed) for cell, speed in zip(plan.cells, plan.speed.cells, strict=True)
        ]
    return found


def row(plan: Plan, cell: Cell, speed: Performance | None) -> dict[str, Any]:
    """One row of the table: bytes of the tightest GPU of that cell, and how fast it is."""
    stage = plan.stages[cell.stage]
    values = {
        "context_tokens": cell.context_tokens,
        "batch": cell.batch,
        "fits": cell.fits,
        "max_requests": cell.max_requests,
        "stage": cell.stage,
        **_lines(stage),
        "kv_cache_bytes": cell.kv_cache_bytes,
        "state_bytes": cell.state_bytes,
        "free_bytes": cell.free_bytes,
        **cell_document(speed),
    }
    return {key: values[key] for key in ROW_KEYS}


def _lines(stage: StageMemory) -> dict[str, int]:
    return {"capacity_bytes": stage.capacity_bytes} | {
        key: stage.line_bytes(key) for key in LINE_KEYS
    }


def _inputs(plan: Plan) -> dict[str, Any]:
    parts = plan.parts
    return {
        "model": parts.model.id,
        "model_name": parts.model.name,
        "architecture": parts.model.architecture,
        "hardware": parts.node.id,
        "gpu": parts.node.gpu.name,
        "gpus": plan.layout.num_gpus,
        "engine": parts.engine.engine,
        "engine_version": parts.engine.version,
        "draft": parts.draft.id if parts.draft else None,
        "layout": _sizes(plan.layout),
        "request": {
            "contexts": plan.request.contexts,
            "batches": plan.request.batches,
            "max_model_len": plan.request.max_model_len,
            "kv_memory_bytes": plan.request.kv_memory_bytes,
            "prefix_caching": plan.request.prefix_caching,
            "draft_tokens": plan.rows.draft_tokens,
            "chunk_tokens": plan.reserved.chunk_tokens,
            "memory_fraction": plan.reserved.fraction.value,
            "text_only": plan.request.text_only,
        },
        "asked": {name: getattr(plan.request, name) for name in ASKED_KEYS},
    }


def _deployment(plan: Plan) -> dict[str, Any]:
    layout, engine, node = plan.layout, plan.parts.engine, plan.parts.node
    return {
        "layout": _sizes(layout)
        | {"num_gpus": layout.num_gpus, "world": layout.world, "text": layout.text},
        "engine": {
            "id": engine.id,
            "engine": engine.engine,
            "version": engine.version,
            "name": engine.name,
            "development": engine.development,
            "logs_capacity": engine.logs_capacity,
            "source": engine.source,
        },
        "hardware": {
            "id": node.id,
            "gpu": node.gpu.name,
            "num_gpus": node.num_gpus,
            "memory_bytes_per_gpu": node.gpu.memory_bytes,
        },
    }


def _offload(found: Offload | None) -> dict[str, Any] | None:
    """Rates are null where nothing moves and so nothing limits them: JSON has no infinity."""
    if found is None:
        return None
    values = {entry.name: getattr(found, entry.name) for entry in fields(found)}
    return {
        name: None if isinstance(value, float) and isinf(value) else value
        for name, value in values.items()
    }


def _sizes(layout: Layout) -> dict[str, int]:
    return {name: getattr(layout, name) for name in ("nodes", "tp", "pp", "dp", "ep", "dcp")}


def _weights(plan: Plan) -> dict[str, Any]:
    counted = plan.inventory
    return {
        "total_bytes": counted.total_bytes,
        "num_tensors": counted.num_tensors,
        "total_params": counted.total_params,
        "active_params": counted.active_params,
        "per_rank_bytes": [stage.total_bytes for stage in plan.weights],
        "padding_bytes": [stage.padding_bytes for stage in plan.weights],
        "basis": counted.bases,
        "source": counted.source,
        "groups": counted.groups,
    }


def _memory(plan: Plan) -> dict[str, Any]:
    tightest, cell = plan.stages[plan.tightest], plan.cell
    used = {"kv_cache_bytes": cell.kv_cache_bytes, "state_bytes": cell.state_bytes}
    return {
        "per_gpu": _lines(tightest) | used | {"free_bytes": cell.free_bytes},
        "pool_bytes": tightest.pool_bytes,
        "stage": tightest.stage,
        "lines": [
            {
                "key": line.key,
                "label": line.label,
                "bytes": line.num_bytes,
                "basis": line.bases,
                "source": line.source,
            }
            for line in tightest.fixed
        ],
        "stages": [
            {
                "stage": stage.stage,
                "first_layer": stage.first_layer,
                "end_layer": stage.end_layer,
                "pool_bytes": stage.pool_bytes,
                **_lines(stage),
            }
            for stage in plan.stages
        ],
    }


def _cache(plan: Plan) -> dict[str, Any]:
    tightest = plan.caches[plan.tightest]
    return {
        "bytes_per_token": plan.cost.bytes_per_token,
        "latent_bytes_per_token": plan.cost.latent_bytes_per_token,
        "indexer_bytes_per_token": plan.cost.indexer_bytes_per_token,
        "state_bytes_per_sequence": plan.cost.state_bytes_per_sequence,
        "kv_format": plan.rows.kv_format,
        "index_format": plan.rows.index_format,
        "state_dtype": plan.rows.state_dtype,
        "per_gpu": _per_gpu(tightest),
    }


def _per_gpu(cache: StageCache) -> dict[str, float]:
    return {
        "bytes_per_token": cache.bytes_per_token,
        "latent_bytes_per_token": cache.latent_bytes_per_token,
        "indexer_bytes_per_token": cache.indexer_bytes_per_token,
        "draft_bytes_per_token": cache.draft_bytes_per_token,
        "state_bytes_per_sequence": cache.state_bytes_per_sequence,
    }


def _capacity(plan: Plan) -> dict[str, Any]:
    found = plan.capacity
    names = (
        "rule",
        "pool_bytes",
        "kv_cache_tokens",
        "max_concurrency",
        "max_requests",
        "block_tokens",
        "num_blocks",
        "bytes_per_block",
        "blocks_per_request",
        "max_model_len",
        "state_slots",
        "log",
    )
    return {name: getattr(found, name) for name in names} | {"instances": plan.instances}
