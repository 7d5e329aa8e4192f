"""``k31ctl doctor``: is this machine ready to serve the model."""

from pathlib import Path
from typing import Annotated

from k31ctl.cli import doctor_options as own
from k31ctl.cli.options import JsonOpt, MarkdownOpt, NodesOpt, ProfilesOpt, gate_option
from k31ctl.cli.plan_options import EngineOpt


def doctor(
    model: own.ModelOpt = "kimi-k3.1-pro",
    engine: EngineOpt = "vllm",
    on: own.OnOpt = None,
    nodes: NodesOpt = 1,
    weights: own.WeightsOpt = None,
    python: own.PythonOpt = None,
    peers: own.PeersOpt = None,
    root: own.RootOpt = Path("/"),
    only: own.OnlyOpt = None,
    skip: own.SkipOpt = None,
    timeout: own.TimeoutOpt = 10.0,
    profiles: ProfilesOpt = None,
    gate: Annotated[list[str] | None, gate_option("num_warnings==0")] = None,
    markdown: MarkdownOpt = None,
    *,
    as_json: JsonOpt = False,
) -> None:
    """Check this machine: GPUs, driver, links, memory, disks, limits, network, software.

    Nothing is changed. Problems come first, each with what to do; exit code 4
    where one of them is an error.

    k31ctl doctor --engine sglang --on 8x-b300 --weights /models/k3

    k31ctl doctor --nodes 2 --peers node2:22 --json
    """
    from k31ctl.api.machine import doctor as judged
    from k31ctl.core.gates import parse_gate
    from k31ctl.host.describe import Asked
    from k31ctl.report.doctor import require_ready, show_readiness

    gates = [parse_gate(text) for text in gate or ()]
    asked = Asked(weights=weights, interpreter=python, peers=own.peer_addresses(peers))
    found = judged(
        model,
        engine=engine,
        on=on,
        nodes=nodes,
        weights=weights,
        python=python,
        peers=asked.peers,
        root=root,
        only=only or (),
        skip=skip or (),
        timeout=timeout,
        profiles=profiles or (),
    )
    show_readiness(found, asked=asked, gates=gates, as_json=as_json, markdown=markdown)
    require_ready(found, gates)
