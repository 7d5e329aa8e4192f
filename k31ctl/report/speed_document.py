"""Speed under the names that others rely on: a value, and low and high beside it."""

from typing import Any

from k31ctl.core.estimate import Estimate
from k31ctl.core.performance import Performance
from k31ctl.core.speed_plan import SpeedPlan
from k31ctl.core.step import Part

ESTIMATES = (
    "ttft_s",
    "tpot_s",
    "itl_s",
    "e2e_s",
    "output_tok_s",
    "total_tok_s_per_gpu",
    "prefill_tok_s_per_gpu",
    "tok_s_per_user",
)
CURVE_ESTIMATES = (
    "ttft_s",
    "tpot_s",
    "output_tok_s",
    "total_tok_s_per_gpu",
    "tok_s_per_user",
)
CELL_KEYS = (
    *(f"{name}{end}" for name in CURVE_ESTIMATES for end in ("", "_low", "_high")),
    "bound_by",
)


def performance_document(found: Performance | None) -> dict[str, Any] | None:
    """Every figure of one load, what bounds it and the parts of its steps; None stays None."""
    if found is None:
        return None
    return {
        **_estimates(found, ESTIMATES),
        "bound_by": found.bound_by,
        "workload": found.workload,
        "running": found.running,
        "waiting": found.waiting,
        "prefill_share": found.prefill_share,
        "breakdown": [
            *_parts("decode", found.decode_parts),
            *_parts("prefill", found.prefill_parts),
        ],
    }


def simulation_document(plan: SpeedPlan) -> dict[str, Any] | None:
    """What a load that was played out came to; None where none was."""
    played = plan.simulated
    if played is None:
        return None
    good = played.goodput
    return {
        "summary": played.summary,
        "num_groups": played.num_groups,
        "output_tok_s": played.output_tok_s,
        "total_tok_s": played.total_tok_s,
        "seed": played.seed,
        "notes": played.notes,
        "goodput": None
        if good is None
        else {
            "met": good.met,
            "good_fraction": good.good_fraction,
            "good_requests_per_s": good.good_requests_per_s * played.num_groups,
            "good_output_tok_s": good.good_output_tok_s * played.num_groups,
            "limits": [
                {
                    "name": kept.limit.name,
                    "at_most_s": kept.limit.at_most_s,
                    "actual_s": kept.actual_s,
                    "kept": kept.kept,
                }
                for kept in good.limits
            ],
        },
    }


def curve_document(plan: SpeedPlan) -> list[dict[str, Any]]:
    """Throughput and latency over a range of concurrencies."""
    return [
        {
            "concurrency": point.workload.concurrency,
            "running": point.running,
            **_estimates(point, CURVE_ESTIMATES),
            "bound_by": point.bound_by,
            "fits": not point.waiting,
        }
        for point in plan.curve
    ]


def cell_document(found: Performance | None) -> dict[str, Any]:
    """The figures of one cell of a sweep; null where nothing runs."""
    values: dict[str, Any] = {}
    for name in CURVE_ESTIMATES:
        estimate: Estimate | None = getattr(found, name) if found else None
        values[name] = estimate.value if estimate else None
        values[f"{name}_low"] = estimate.low if estimate else None
        values[f"{name}_high"] = estimate.high if estimate else None
    values["bound_by"] = found.bound_by if found else None
    return values


def _estimates(found: Performance, names: tuple[str, ...]) -> dict[str, float]:
    values: dict[str, float] = {}
    for name in names:
        estimate: Estimate = getattr(found, name)
        values[name] = estimate.value
        values[f"{name}_low"] = estimate.low
        values[f"{name}_high"] = estimate.high
    return values


def _parts(phase: str, parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    total = sum(part.seconds for part in parts)
    return [
        {
            "phase": phase,
            "part": part.name,
            "seconds": part.seconds,
            "share": part.seconds / total,
            "bound_by": part.bound_by,
            "limit_s": part.limit_s,
            "spread": part.spread,
            "source": part.source,
            "basis": part.basis,
        }
        for part in sorted(parts, key=lambda part: -part.seconds)
    ]
