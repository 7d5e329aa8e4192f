"""A published measurement as a call of aiconfigurator, and the answer in the same units."""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from k31ctl.core.measurement import Measurement, Trial

MODEL_PATH = "moonshotai/Kimi-K3"
PEER = "aiconfigurator"
ASKER = Path(__file__).with_name("aiconfigurator_points.py")
SYSTEMS = {
    "8x-h200": "h200_sxm",
    "8x-b200": "b200_sxm",
    "8x-b300": "b300_sxm",
    "4x-gb200": "gb200",
    "4x-gb300": "gb300",
    "8x-rtx-pro-6000": "rtx_pro_6000_server",
}
BACKENDS = ("vllm", "sglang")
KV_FORMATS = {"bf16": "bfloat16", "fp8": "fp8"}
# Which of its modes has a quantity: a run of requests, prefill alone, decoding alone.
MODES = {
    "prefill_tok_s_per_gpu": "static_ctx",
    "decode_tok_s_per_gpu": "static_gen",
    "tok_s_per_user": "static_gen",
    "step_ms": "static_gen",
}
LONGEST_REASON = 110


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of aiconfigurator, its GPUs, and the share of its requests that were measured."""

    arguments: Mapping[str, Any]
    num_gpus: int
    scale: float


def interpreter(asked: str | None) -> tuple[str | None, str]:
    """The Python that has aiconfigurator, or None and why."""
    named = asked or os.environ.get("AICONFIGURATOR_PYTHON")
    if named:
        found = shutil.which(named)
        return found, "" if found else f"{named} is no program"
    program = shutil.which(PEER)
    if program is None:
        return None, f"no {PEER} on PATH; pass --python or set AICONFIGURATOR_PYTHON"
    first = Path(program).read_bytes().split(b"\n", 1)[0].decode(errors="replace")
    words = first.removeprefix("#!").split()
    if not first.startswith("#!") or "python" not in Path(words[0]).name:
        return None, f"{program} does not name its Python; pass --python"
    return words[0], ""


def call_of(
    trial: Trial, row: Mapping[str, Any], mode: str, options: Namespace
) -> tuple[Call | None, str]:
    """The call for a trial in a mode, or None and why it cannot be expressed."""
    run, layout, load = trial.measurement, trial.case.layout, trial.measurement.workload
    backend = run.engine.partition("-")[0]
    if run.hardware not in SYSTEMS:
        return None, f"has no system like {run.hardware}"
    if backend not in BACKENDS:
        return None, f"has no backend {backend}"
    if layout.dcp > 1:
        return None, "has no option for decode context parallelism"
    running = float(load.concurrency or 1)
    if options.batch == "held":
        running = min(running, trial.most_running * layout.dp)
    # A batch of aiconfigurator is of one attention group and one pipeline stage.
    groups = layout.pp * layout.dp
    batch = max(1, ceil(running / groups))
    kept = trial.case.tokens_per_step
    arguments = {
        "model_path": MODEL_PATH,
        "system_name": SYSTEMS[run.hardware],
        "mode": mode,
        "backend_name": backend,
        "backend_version": options.data,
        "isl": load.prompt_tokens,
        "osl": load.output_tokens,
        "prefix": min(round(load.prompt_tokens * load.cached_fraction), load.prompt_tokens - 1),
        "batch_size": batch,
        "tp_size": layout.attention_tp,
        "pp_size": layout.pp,
        "attention_dp_size": layout.dp,
        "moe_tp_size": layout.expert_tp,
        "moe_ep_size": layout.ep,
        "kvcache_quant_mode": KV_FORMATS.get(row.get("kv") or ""),
        "nextn": trial.case.positions - 1,
        "nextn_accepted": kept - 1 if trial.case.positions > 1 else None,
    }
    if options.context_tokens == "chunk" and mode == "agg":
        arguments["ctx_tokens"] = min(trial.case.chunk_tokens, batch * load.prompt_tokens)
    scale = min(1.0, running / (batch * groups))
    return Call(arguments=arguments, num_gpus=layout.attention_tp * groups, scale=scale), ""


def quantity_of(name: str, run: Measurement, call: Call, found: Mapping[str, Any]) -> float:
    """A measured quantity from what aiconfigurator answers, in the measurement's unit.

    Requests beyond the measured ones (a pipeline needs one for each stage) are taken off the
    throughput and leave the latencies as they are.
    """
    load, gpus = run.workload, call.num_gpus
    rate = float(found["requests_per_s"]) * call.scale
    match name:
        case "out_tok_s":
            return rate * load.output_tokens
        case "tok_s_per_gpu" | "total_tok_s_per_gpu":
            return rate * (load.prompt_tokens + load.output_tokens) / gpus
        case "prefill_tok_s_per_gpu":
            return rate * load.prompt_tokens / gpus
        case "decode_tok_s_per_gpu":
            return float(found["tok_s"]) * call.scale / gpus
        case "step_ms":
            return float(found["tpot_ms"])
        case _:
            return float(found[name])


def answers(python: str, calls: Sequence[Call]) -> tuple[list[dict[str, Any]], str]:
    """The head and the answers of aiconfigurator, or nothing and why."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [python, "-B", str(ASKER)],
            input=json.dumps([call.arguments for call in calls]),
            capture_output=True,
            text=True,
            cwd=folder,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
            check=False,
        )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or len(lines) != len(calls) + 1:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return [], f"{python} ended with {done.returncode}: {last}"
    return lines, ""


def predicted_by_peer(
    trials: Sequence[Trial], rows: Mapping[str, Mapping[str, Any]], options: Namespace
) -> tuple[dict[tuple[str, str], float], list[str]]:
    """What aiconfigurator says, by measurement and quantity, and lines about how it went."""
    python, why = interpreter(options.python)
    if python is None:
        return {}, [f"{PEER} is left out: {why}"]
    calls: dict[tuple[str, str], Call] = {}
    refused: dict[str, str] = {}
    for trial in trials:
        run = trial.measurement
        for mode in sorted({MODES.get(name, "agg") for name in run.measured}):
            call, why = call_of(trial, rows[run.id], mode, options)
            if call is None:
                refused[run.id] = why
            else:
                calls[run.id, mode] = call
    sys.stderr.write(f"asking {PEER} about {len(calls)} points, some seconds each\n")
    start = time.perf_counter()
    found, why = answers(python, list(calls.values()))
    seconds = time.perf_counter() - start
    if not found:
        return {}, [f"{PEER} is left out: {why}"]
    head, said = found[0], dict(zip(calls, found[1:], strict=True))
    refused |= {run: each["refused"] for (run, _), each in said.items() if "refused" in each}
    each_s = statistics.median(each["seconds"] for each in said.values())
    data = sorted({each["data"] for each in said.values() if "data" in each})
    notes = [
        f"{PEER} {head['version']} (measured tables of {', '.join(data)}): {seconds:.1f} s for "
        f"{len(calls)} points, import {head['seconds']:.1f} s, median point {each_s:.2f} s"
    ]
    notes += [f"- {run}: {PEER} {_short(why)}" for run, why in sorted(refused.items())]
    notes += [
        f"- {run}: {_short(a['warning'])}" for (run, _), a in said.items() if a.get("warning")
    ]
    return {
        (run.id, name): quantity_of(name, run, calls[key], said[key])
        for run in (trial.measurement for trial in trials)
        for name in run.measured
        if "requests_per_s" in said.get(key := (run.id, MODES.get(name, "agg")), {})
    }, notes


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else text[: LONGEST_REASON - 3] + "..."
