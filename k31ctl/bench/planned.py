"""What a plan says of throughput and latency at each concurrency, from its JSON document."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.plan_document import read_plan
from k31ctl.errors import InputError
from k31ctl.values import frozen

_REMEDY: Final = "name a file of k31ctl plan ... --prompt-tokens N --output-tokens N --json"


@frozen
class Predicted:
    """A value between a low and a high."""

    value: float
    low: float
    high: float


@frozen
class PlannedPoint:
    """What is planned at one concurrency."""

    concurrency: int
    output_tok_s: Predicted
    ttft_s: Predicted
    tpot_s: Predicted


@frozen
class PlannedCurve:
    """The points of a plan, and the load that they are for."""

    name: str
    prompt_tokens: int
    output_tokens: int
    points: tuple[PlannedPoint, ...]


def planned_curve(document: Mapping[str, Any], *, where: str) -> PlannedCurve:
    """Return the curve of a plan's document; raises InputError where it has none."""
    try:
        result = document["result"]
        load = result["performance"]["workload"]
        curve = PlannedCurve(
            name=f"{document['inputs']['model']} on {document['inputs']['hardware']}",
            prompt_tokens=int(load["prompt_tokens"]),
            output_tokens=int(load["output_tokens"]),
            points=tuple(_point(row) for row in result["curve"] if row["fits"]),
        )
    except (KeyError, TypeError, ValueError):
        curve = None
    if curve is None or not curve.points:
        raise InputError(
            "the plan says nothing of speed at several concurrencies",
            where=where,
            remedy=_REMEDY,
        )
    return curve


def planned_for(document: Mapping[str, Any], path: Path | None) -> PlannedCurve | None:
    """Return the curve of a plan's file, else of the plan that a run was held against, if any.

    A plan that was not asked for here may have none.
    """
    if path is not None:
        return planned_curve(read_plan(path, remedy=_REMEDY), where=str(path))
    own = document.get("plan")
    if not isinstance(own, Mapping):
        return None
    try:
        return planned_curve(own, where="plan of the record")
    except InputError:
        return None


def _point(row: Mapping[str, Any]) -> PlannedPoint:
    def predicted(name: str) -> Predicted:
        found = [float(row[name + end]) for end in ("", "_low", "_high")]
        if not all(isfinite(value) and value > 0 for value in found):
            raise ValueError(name)
        return Predicted(value=found[0], low=found[1], high=found[2])

    return PlannedPoint(
        concurrency=int(row["concurrency"]),
        output_tok_s=predicted("output_tok_s"),
        ttft_s=predicted("ttft_s"),
        tpot_s=predicted("tpot_s"),
    )
