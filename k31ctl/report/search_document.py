"""A search as plain numbers: candidates, fronts, recommendations, what was left out."""

import csv
import io
from collections.abc import Iterable
from typing import Any

from k31ctl.core.fleet import Fleet, Running
from k31ctl.core.goals import Recommendation
from k31ctl.core.latencies import latency_s
from k31ctl.core.search import Candidate, usd_per_m_output_tokens
from k31ctl.core.searched import LoadAnswer, Searched

MOST_CANDIDATES = 200


def search_result(found: Searched) -> dict[str, Any]:
    """The result of a search by its names.

    ``candidates`` holds those of the fronts and recommendations, then the best of each deployment,
    200 at most for each load; the counts are of all.
    """
    slo, result = found.result.slo, found.result
    return {
        "goal": found.goal,
        "slo": {limit.name: limit.at_most_s for limit in slo.limits},
        "num_deployments": result.num_options,
        "num_evaluated": result.num_evaluated,
        "num_too_large": result.too_large,
        "num_full": result.full,
        "num_idle": result.idle,
        "refused": result.refused,
        "loads": [_load(found, answer) for answer in found.loads],
    }


def search_rows(found: Searched) -> list[dict[str, Any]]:
    """The candidates of all loads as rows with the same keys."""
    return [row(found, c) for answer in found.loads for c in shown_candidates(answer)]


def search_csv(found: Searched) -> str:
    """The rows as CSV; a value that is not known is empty."""
    rows = search_rows(found)
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def shown_candidates(answer: LoadAnswer) -> list[Candidate]:
    """Fronts and recommendations first, then the best of each deployment by throughput."""
    load = answer.load
    first = [*load.speed_front, *load.cost_front, *(r.chosen for r in answer.recommendations)]
    best: dict[int, Candidate] = {}
    for candidate in load.kept:
        key = id(candidate.option)
        known = best.get(key)
        if known is None or candidate.output_tok_s_per_gpu > known.output_tok_s_per_gpu:
            best[key] = candidate
    rest = sorted(best.values(), key=lambda c: -c.output_tok_s_per_gpu)
    return _distinct([*first, *rest])[:MOST_CANDIDATES]


def row(found: Searched, candidate: Candidate) -> dict[str, Any]:
    """One candidate: what it is, what it reaches, and what the limited latencies are."""
    option, workload = candidate.option, candidate.workload
    layout, parts = option.layout, option.parts
    latencies = {
        limit.name: latency_s(candidate.service, limit, output_tokens=workload.output_tokens)
        for limit in found.result.slo.limits
    }
    return {
        "prompt_tokens": workload.prompt_tokens,
        "output_tokens": workload.output_tokens,
        "concurrency": candidate.concurrency,
        "hardware": parts.node.id,
        "nodes": layout.nodes,
        "num_gpus": option.num_gpus,
        "engine": parts.engine.id,
        "layout": layout.text,
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ep": layout.ep,
        "dcp": layout.dcp,
        "kv_dtype": str(option.kv_format),
        "state_dtype": str(option.state_dtype),
        "draft": parts.draft.id if parts.draft else None,
        "chunk_tokens": option.chunk_tokens,
        "requests_per_s": candidate.requests_per_s,
        "output_tok_s": candidate.output_tok_s,
        "output_tok_s_per_gpu": candidate.output_tok_s_per_gpu,
        "total_tok_s_per_gpu": candidate.total_tok_s_per_gpu,
        "tok_s_per_user": candidate.tok_s_per_user,
        "ttft_s": candidate.ttft_s,
        "tpot_s": candidate.tpot_s,
        **latencies,
        "usd_per_hour": option.usd_per_hour,
        "usd_per_m_output_tokens": usd_per_m_output_tokens(candidate),
        "usd_per_m_total_tokens": candidate.usd_per_m_total_tokens,
        "longest_context_tokens": option.longest_context,
    }


def _load(found: Searched, answer: LoadAnswer) -> dict[str, Any]:
    load = answer.load
    shown = shown_candidates(answer)
    places = {id(candidate): place for place, candidate in enumerate(shown)}

    def marks(candidates: Iterable[Candidate]) -> list[int]:
        return [places[id(c)] for c in candidates if id(c) in places]

    return {
        "prompt_tokens": load.workload.prompt_tokens,
        "output_tokens": load.workload.output_tokens,
        "cached_fraction": load.workload.cached_fraction,
        "num_candidates": len(load.candidates),
        "num_within_slo": len(load.kept),
        "candidates": [row(found, candidate) for candidate in shown],
        "pareto": {
            "output_tok_s_per_gpu_against_tok_s_per_user": marks(load.speed_front),
            "usd_per_m_total_tokens_against_ttft_s": marks(load.cost_front),
        },
        "recommendations": [_recommended(found, r) for r in answer.recommendations],
        "fleet": _fleet(answer.fleet),
        "why_not": answer.why_not,
    }


def _recommended(found: Searched, made: Recommendation) -> dict[str, Any]:
    return {
        "goal": made.goal,
        "chosen": row(found, made.chosen),
        "runner_up": row(found, made.runner_up) if made.runner_up else None,
        "elsewhere": row(found, made.elsewhere) if made.elsewhere else None,
        "because": made.because,
    }


def _fleet(made: Fleet | None) -> dict[str, Any] | None:
    if made is None:
        return None
    return {
        "load": made.load,
        "requests_per_s": made.requests_per_s,
        "needed_concurrency": made.needed_concurrency,
        "replicas": made.replicas,
        "num_gpus": made.num_gpus,
        "usd_per_hour": made.usd_per_hour,
        "usual": _running(made.usual),
        "one_failed": _running(made.one_failed),
    }


def _running(made: Running) -> dict[str, Any]:
    service = made.service
    return {
        "replicas": made.replicas,
        "utilisation": made.utilisation,
        "concurrency": made.concurrency,
        "within_slo": made.kept,
        "ttft_s": service.ttft_s if service else None,
        "tpot_s": service.tpot_s if service else None,
    }


def _distinct(candidates: list[Candidate]) -> list[Candidate]:
    return list({id(candidate): candidate for candidate in candidates}.values())
