"""``k31ctl serve --engine tensorrt-llm``: a YAML and what starts it."""

from collections.abc import Sequence
from pathlib import Path

from k31ctl.catalog.store import Store
from k31ctl.core.gates import Gate
from k31ctl.report.serve import show_launch
from k31ctl.report.serve_gates import gate_results
from k31ctl.serve.asked import Asked, Place
from k31ctl.serve.launch_files import with_readme
from k31ctl.serve.tensorrt import tensorrt_files, tensorrt_rollout


def serve_tensorrt(
    store: Store,
    *,
    model: str,
    engine: str,
    on: str,
    asked: Asked,
    place: Place,
    out: Path | None,
    force: bool,
    as_json: bool,
    gates: Sequence[Gate] = (),
) -> None:
    """Write the files of TensorRT-LLM, whose flags no catalog has."""
    made = tensorrt_rollout(store, model=model, engine=engine, on=on, asked=asked, place=place)
    show_launch(
        made,
        with_readme(made, asked.target, tensorrt_files(made, asked.target)),
        findings=(),
        inputs={
            "model": made.servers[0].plan.parts.model.id,
            "engine": engine,
            "on": on,
            "nodes": asked.layout.nodes,
            "as": asked.target,
            "goal": asked.aim,
        },
        out=out,
        force=force,
        as_json=as_json,
        gates=gate_results(gates, made, ()),
    )
