"""``k31ctl doctor``: is this machine ready to serve the model."""

import os
from pathlib import Path

from k31ctl.cli import doctor_options as own
from k31ctl.cli.options import GateOpt, JsonOpt, MarkdownOpt, NodesOpt, ProfilesOpt
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
    gate: GateOpt = None,
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
    from k31ctl.catalog.needs import load_need
    from k31ctl.catalog.store import Store, default_folders
    from k31ctl.core.gates import parse_gate
    from k31ctl.core.readiness import RULES, chosen_rules, judged, sections_of
    from k31ctl.host.describe import Asked, describe
    from k31ctl.host.probe import Probe, Processes
    from k31ctl.report.doctor import require_ready, show_readiness

    gates = [parse_gate(text) for text in gate or ()]
    ids = [rule.id for rule in RULES]
    rules = chosen_rules(
        only=own.known_ids("--only", only, ids), skip=own.known_ids("--skip", skip, ids)
    )
    asked = Asked(weights=weights, interpreter=python, peers=own.peer_addresses(peers))
    store = Store(default_folders(profiles or ()))
    need = load_need(store, model=model, engine=engine, on=on, num_nodes=nodes)
    probe = Probe(
        root=root,
        path=os.environ.get("PATH", os.defpath),
        environment=dict(os.environ),
        timeout_s=timeout,
        processes=Processes(),
    )
    found = judged(describe(probe, asked, sections=sections_of(rules)), need, rules)
    show_readiness(found, asked=asked, gates=gates, as_json=as_json, markdown=markdown)
    require_ready(found, gates)
