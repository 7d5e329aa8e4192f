"""Documents of plans with every section a page can show: a real plan, and made-up numbers."""

import json
from typing import Any

from k31ctl.report.plan_document import document
from k31ctl.report.speed_document import CELL_KEYS
from tests.core.deployments import planned

LOADS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SPREAD = 0.25
UNMEASURED = (
    "no public measurement of Kimi K3.1 Pro on data-centre GPUs exists; its speed is modelled from "
    "Kimi K3's"
)


def bare() -> dict[str, Any]:
    """A plan for one case: nothing but memory and capacity."""
    return silent(loaded())


def real() -> dict[str, Any]:
    """A plan for a table of cases as the program makes it, with its speed and its cost."""
    return loaded(contexts=(8_192, 131_072), batches=(1, 8))


def silent(found: dict[str, Any]) -> dict[str, Any]:
    """The same document without a word on speed or money."""
    result = found["result"]
    for row in result.get("sweep", ()):
        for key in CELL_KEYS:
            del row[key]
    for key in ("performance", "curve", "cost"):
        result[key] = None
    found["assumptions"] = [a for a in found["assumptions"] if not a["id"].startswith("speed")]
    return found


def swept() -> dict[str, Any]:
    """A plan for a table of cases, some of which do not fit."""
    return silent(_swept())


def _swept() -> dict[str, Any]:
    return loaded(contexts=(8_192, 32_768, 131_072, 524_288, 1_048_576), batches=(1, 8, 32, 128))


def too_large() -> dict[str, Any]:
    """A plan that does not fit."""
    return silent(loaded(node_id="8x-h200"))


def staged() -> dict[str, Any]:
    """A plan over the stages of a pipeline."""
    return silent(loaded(node_id="8x-h200", nodes=2, tp=8, pp=2))


def full() -> dict[str, Any]:
    """A plan with every section."""
    found = swept()
    found["result"] |= {
        "performance": _performance(),
        "curve": [_point(load) for load in LOADS],
        "heatmap": [_timed(row) for row in found["result"]["sweep"]],
        "cost": _cost(),
        "candidates": _candidates(),
        "pareto": [0, 2, 3, 6, 7],
        "recommendations": [
            {"goal": "Cheapest token", "row": 3, "because": "$2.10 per million output tokens"},
            {"goal": "Fastest for one reader", "row": 7, "because": "142 tokens a second"},
            {"goal": "Fewest GPUs", "row": _candidates()[0], "because": "one node is enough"},
        ],
        "cold_start": _cold_start(),
    }
    found["assumptions"].append(
        {"id": "unmeasured", "text": UNMEASURED, "basis": "assumed", "source": "as of 2026-11-29"}
    )
    return found


def loaded(**asked: Any) -> dict[str, Any]:
    """The document of a real plan, as a reader of its JSON has it."""
    found: dict[str, Any] = json.loads(document(planned(**asked), ()))
    return found


def _range(key: str, value: float) -> dict[str, float]:
    low, high = value * (1 - SPREAD), value * (1 + 1.4 * SPREAD)
    return {key: value, f"{key}_low": low, f"{key}_high": high}


def _point(load: int) -> dict[str, Any]:
    tpot_s = 0.0088 + 0.00031 * load
    output = load / tpot_s
    ttft_s = 0.9 + 0.02 * load if load <= 64 else 2.2 + 0.35 * (load - 64)
    return {
        "concurrency": load,
        "fits": load <= 128,
        "bound_by": "memory" if load < 64 else ("network" if load < 256 else "queue"),
        **_range("ttft_s", ttft_s),
        **_range("tpot_s", tpot_s),
        **_range("output_tok_s", output),
        **_range("total_tok_s_per_gpu", output * 9 / 8),
        **_range("tok_s_per_user", 1 / tpot_s),
        **_range("usd_per_m_output_tokens", 55.92 / 3600 / output / 0.6 * 1e6),
    }


def _performance() -> dict[str, Any]:
    at = _point(32)
    parts = (
        ("decode", "routed experts", 0.0081, 0.0069, "memory"),
        ("decode", "attention, dense weights", 0.0036, 0.0029, "memory"),
        ("decode", "all-reduce over TP8", 0.0034, 0.0011, "network"),
        ("decode", "KV cache and index keys", 0.0019, 0.0016, "memory"),
        ("decode", "kernel launches", 0.0017, 0.0, "launch"),
        ("prefill", "routed experts", 0.71, 0.42, "compute"),
        ("prefill", "attention", 0.33, 0.2, "compute"),
        ("prefill", "all-reduce over TP8", 0.19, 0.12, "network"),
    )
    sums = {phase: sum(p[2] for p in parts if p[0] == phase) for phase in ("decode", "prefill")}
    return {
        "workload": {
            "prompt_tokens": 8192,
            "output_tokens": 1024,
            "cached_fraction": 0.5,
            "concurrency": 32,
            "rate_per_s": None,
        },
        **{k: v for k, v in at.items() if k not in {"concurrency", "fits"}},
        **_range("itl_s", 0.021),
        **_range("e2e_s", 20.7),
        **_range("prefill_tok_s_per_gpu", 8300.0),
        "breakdown": [
            {
                "phase": phase,
                "part": part,
                "seconds": seconds,
                "share": seconds / sums[phase],
                "bound_by": bound_by,
                "limit_s": limit_s,
                "source": "https://github.com/SemiAnalysisAI/InferenceX, 2026-08",
                "basis": "measured",
            }
            for phase, part, seconds, limit_s, bound_by in parts
        ],
    }


def _timed(row: dict[str, Any]) -> dict[str, Any]:
    kept = {key: row[key] for key in ("context_tokens", "batch", "fits", "max_requests")}
    slow = 0.0088 + row["batch"] * (0.0002 + row["context_tokens"] * 2e-9)
    return kept | {"tpot_s": slow if row["fits"] else None}


def _cost() -> dict[str, Any]:
    return {
        "usd_per_hour": 55.92,
        **_range("usd_per_m_input_tokens", 0.42),
        **_range("usd_per_m_cached_input_tokens", 0.04),
        **_range("usd_per_m_output_tokens", 6.93),
        **_range("break_even_tokens_per_day", 612e6),
        "inputs": {"output_tok_s": 3736.0, "utilisation": 0.6},
        "price": {
            "usd_per_gpu_hour": 6.99,
            "low": 4.95,
            "high": 9.5,
            "provider": "a cloud",
            "term": "on demand",
            "date": "2026-11-20",
            "source": "https://example.com/prices?gpu=b300&term=hour",
        },
        "api": {
            "name": "Kimi K3.1 Pro API",
            "input": 3.0,
            "cached_input": 0.3,
            "output": 15.0,
            "source": "https://example.com/api-prices",
            "date": "2026-11-20",
        },
        "purchase": {"server_usd": 540000, "years": 4, "usd_per_kwh": 0.12, "pue": 1.3},
        "sensitivity": [
            {
                "utilisation": busy,
                **_range("usd_per_m_output_tokens", 6.93 * 0.6 / busy),
                "break_even_tokens_per_day": 612e6,
            }
            for busy in (0.2, 0.4, 0.6, 0.8, 1.0)
        ],
    }


def _candidates() -> list[dict[str, Any]]:
    table = (
        ("8x-b300", 1, "vLLM main", "TP8", 32, 690.0, 53.0, 6.93),
        ("8x-b300", 1, "vLLM main", "TP8", 8, 250.0, 86.0, 14.6),
        ("8x-b300", 1, "SGLang", "TP8", 64, 1090.0, 41.0, 4.2),
        ("8x-b300", 2, "SGLang", "TP8xDP2+EP16", 256, 1720.0, 24.0, 2.1),
        ("8x-h200", 2, "vLLM main", "TP8xPP2", 32, 310.0, 29.0, 9.8),
        ("8x-h200", 2, "SGLang", "TP16", 16, 190.0, 44.0, 15.9),
        ("gb300-nvl72", 1, "SGLang", "TP16", 16, 410.0, 104.0, 11.2),
        ("gb300-nvl72", 1, "SGLang", "TP32", 4, 96.0, 142.0, 39.0),
        ("8x-mi355x", 1, "SGLang", "TP8", 64, 760.0, 31.0, 4.4),
    )
    return [
        {
            "hardware": hardware,
            "nodes": nodes,
            "engine": engine,
            "layout": layout,
            "kv_dtype": "fp8",
            "concurrency": load,
            "output_tok_s": reader * load,
            "total_tok_s_per_gpu": per_gpu,
            "tok_s_per_user": reader,
            "ttft_s": 1.1 + load / 100,
            "tpot_s": 1 / reader,
            "usd_per_hour": 55.92 * nodes,
            "usd_per_m_output_tokens": usd,
            "meets_slo": reader > 30,
        }
        for hardware, nodes, engine, layout, load, per_gpu, reader, usd in table
    ]


def _cold_start() -> dict[str, Any]:
    steps = (
        ("start the node", 240.0),
        ("download the checkpoint", 3120.0),
        ("load the weights", 372.0),
        ("compile kernels", 410.0),
        ("capture CUDA graphs", 95.0),
        ("first request", 3.0),
    )
    return {
        "total_s": sum(seconds for _, seconds in steps),
        "parts": [
            {
                "part": part,
                "seconds": seconds,
                "low": seconds * 0.7,
                "high": seconds * 1.6,
                "source": "https://github.com/whn09/kimi-k3-sglang, 2026-08",
            }
            for part, seconds in steps
        ],
    }
