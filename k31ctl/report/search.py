"""Shows a search in the form that was asked for, then holds its first answer against its gates."""

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from k31ctl.core.gates import Gate, GateResult, evaluate
from k31ctl.core.goals import Recommendation
from k31ctl.core.plan import Plan, plan
from k31ctl.core.price_choice import PriceBook
from k31ctl.core.searched import Searched
from k31ctl.errors import GateError
from k31ctl.report.envelope import envelope
from k31ctl.report.files import STANDARD_OUTPUT, write_all
from k31ctl.report.html import plan_page
from k31ctl.report.plan_document import document
from k31ctl.report.search_document import row, search_csv, search_result
from k31ctl.report.search_text import NO_LEVELS, search_text
from k31ctl.report.targets import require_apart


def show_search(
    found: Searched,
    prices: PriceBook | None,
    *,
    gates: tuple[Gate, ...],
    as_json: bool,
    csv: Path | None,
    html: Path | None,
    command: str,
) -> None:
    """Print the answer, write the files, and raise GateError where a gate does not hold.

    Gates read the first recommendation of the goal: its names are those of a candidate.
    """
    require_apart(csv, html, as_json=as_json)
    result = searched_result(found)
    held = tuple(evaluate(gate, _gated(result)) for gate in gates)
    result["gates"] = held
    texts: dict[Path, str] = {}
    makers: tuple[tuple[Path | None, Callable[[], str]], ...] = (
        (csv, lambda: search_csv(found)),
        (html, lambda: _page(found, prices, result, command)),
    )
    for path, made in makers:
        if path is not None:
            texts[path] = made()
    write_all(texts)
    if as_json:
        sys.stdout.write(_document(found, result))
    elif STANDARD_OUTPUT not in texts:
        sys.stdout.write(search_text(found))
    _hold(held)


def _hold(held: tuple[GateResult, ...]) -> None:
    failed = [gate for gate in held if not gate.passed]
    if failed:
        raise GateError(
            "; ".join(f"{gate.gate} is not met, it is {gate.actual_text}" for gate in failed),
            where="the first recommendation of the search",
            remedy="widen the search, or change the gate",
        )


def _first(found: Searched) -> Recommendation | None:
    made = [answer.of(found.goal) for answer in found.loads]
    return next((each for each in made if each is not None), None)


def searched_result(found: Searched) -> dict[str, Any]:
    """The result, with every load's candidates and Pareto front in two lists as well."""
    result = search_result(found)
    first = _first(found)
    candidates: list[dict[str, Any]] = []
    pareto: list[dict[str, Any]] = []
    for load in result["loads"]:
        candidates += load["candidates"]
        places = load["pareto"]["output_tok_s_per_gpu_against_tok_s_per_user"]
        pareto += [load["candidates"][place] for place in places]
    return result | {
        "candidates": candidates,
        "pareto": pareto,
        "recommended": row(found, first.chosen) if first else None,
    }


def _gated(result: dict[str, Any]) -> dict[str, Any]:
    return result["recommended"] or {}


def _document(found: Searched, result: dict[str, Any]) -> str:
    space = found.result.space
    return envelope(
        "plan",
        inputs={
            "model": space.model.id,
            "systems": [system.node.id for system in space.systems],
            "engines": [engine.id for engine in space.engines],
            "goal": found.goal,
        },
        result=result,
        assumptions=space.model.assumptions,
        warnings=[
            *([] if found.result.slo.limits else [NO_LEVELS]),
            *(answer.why_not for answer in found.loads if answer.why_not),
        ],
    )


def _page(found: Searched, prices: PriceBook | None, result: dict[str, Any], command: str) -> str:
    """The page of the first recommendation's own plan, with all that it was chosen from."""
    first = _first(found)
    assert first is not None
    page = json.loads(document(_plan_of(first, prices), ()))
    load = next(each for each in result["loads"] if each["recommendations"])
    page["result"] |= {
        "candidates": [each | {"meets_slo": True} for each in load["candidates"]],
        "pareto": load["pareto"]["output_tok_s_per_gpu_against_tok_s_per_user"],
        "recommendations": [
            {"goal": made["goal"], "row": made["chosen"], "because": made["because"]}
            for made in load["recommendations"]
        ],
    }
    return plan_page(json.loads(json.dumps(page, default=str)), command=command)


def _plan_of(made: Recommendation, prices: PriceBook | None) -> Plan:
    option, load = made.chosen.option, made.chosen.workload
    request = replace(
        option.request,
        contexts=(load.prompt_tokens + load.output_tokens,),
        batches=(made.chosen.concurrency,),
        workload=replace(
            option.request.workload,
            prompt_tokens=load.prompt_tokens,
            output_tokens=load.output_tokens,
            concurrency=made.chosen.concurrency,
        ),
    )
    return plan(replace(option.parts, prices=prices), request)
