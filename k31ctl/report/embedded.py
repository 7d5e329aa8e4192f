"""What the embedded engine is going to hold, which code computes, and where it answers."""

import sys
from collections.abc import Mapping, Sequence
from typing import Final

from k31ctl.core.embedded import MemoryPlan
from k31ctl.core.expert_budget import expert_uses_text
from k31ctl.core.figure import Line
from k31ctl.core.model import Model
from k31ctl.core.stages import together
from k31ctl.report.envelope import envelope
from k31ctl.report.lines import folded, printable
from k31ctl.units import counted, show_bytes

_FOR: Final = "For smoke tests, numerics and development; not for production traffic."


def show_choice(
    shape: Model,
    stages: Sequence[MemoryPlan],
    reasons: Sequence[str],
    *,
    layers: range | None,
) -> None:
    """Say what will be allocated, before it is."""
    lines = [f"{shape.name} on the embedded engine.", _FOR]
    if layers is not None:
        lines += folded(
            f"Layers {layers.start} to {layers.stop - 1} alone of {shape.num_layers}: "
            "answers mean nothing, how they are computed does.",
            indent="",
        )
    lines += ["", *memory_lines(stages), ""]
    for reason in reasons:
        lines += folded(reason, indent="  ")
    _say(lines)


def memory_lines(stages: Sequence[MemoryPlan]) -> list[str]:
    """The memory plan of each device as a table, and what their caches hold."""
    plan = together(stages)
    load, lines = plan.load, []
    for stage in stages:
        whole = f"memory of {stage.device}, {show_bytes(stage.free_bytes)} free"
        if len(stages) > 1:
            whole += f", layers {stage.layers.start}-{stage.layers.stop - 1}"
        left = show_bytes(stage.free_bytes - stage.total_bytes)
        rows = [_row(line) for line in stage.lines]
        lines += [f"  {whole:56}  basis", *rows, f"  {'left':44}{left:>12}", ""]
    return [
        *lines,
        f"  {counted(load.num_requests, 'request')} at once, {load.num_tokens:,} tokens in all, "
        f"{load.max_model_len:,} in one",
        f"  a token costs {plan.bytes_per_token:,} B, a request "
        f"{plan.state_bytes_per_request:,} B of state",
    ]


def _row(line: Line) -> str:
    basis = "+".join(line.bases)
    return f"  {line.label:44}{show_bytes(line.num_bytes):>12}  {basis}"


def show_serving(
    url: str,
    name: str,
    stages: Sequence[MemoryPlan],
    *,
    reasons: Sequence[str],
    paths: Sequence[str],
    inputs: Mapping[str, object],
    as_json: bool,
) -> None:
    """Say that it can be reached now, and which code answers."""
    if as_json:
        result = {
            "url": url,
            "served_name": name,
            "reasons": reasons,
            "paths": paths,
            "memory": memory_result(stages),
        }
        sys.stdout.write(envelope("serve-embedded", inputs=inputs, result=result))
        sys.stdout.flush()
        return
    lines = ["", "computed by"]
    for path in paths:
        lines += folded(path, indent="  ")
    _say([*lines, "", f"ready: {name} at {url}/v1 (end with Ctrl-C)"])


def show_expert_uses(uses: Mapping[str, int] | None, *, as_json: bool) -> None:
    """Say where streamed experts were found, if any were; beside the answer where it is JSON."""
    if uses is None:
        return
    (sys.stderr if as_json else sys.stdout).write(f"{expert_uses_text(uses)}\n")


def memory_result(stages: Sequence[MemoryPlan]) -> dict[str, object]:
    """The memory plan as JSON has it."""
    plan = together(stages)
    return {
        "stages": [
            {
                "device": stage.device,
                "layers": [stage.layers.start, stage.layers.stop - 1],
                "free_bytes": stage.free_bytes,
                "total_bytes": stage.total_bytes,
                "lines": stage.lines,
            }
            for stage in stages
        ],
        "device": plan.device,
        "free_bytes": plan.free_bytes,
        "total_bytes": plan.total_bytes,
        "fits": plan.fits,
        "lines": plan.lines,
        "num_requests": plan.load.num_requests,
        "max_model_len": plan.load.max_model_len,
        "num_tokens": plan.load.num_tokens,
        "bytes_per_token": plan.bytes_per_token,
        "state_bytes_per_request": plan.state_bytes_per_request,
    }


def _say(lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()
