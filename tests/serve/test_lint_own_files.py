"""Folders of launch files that ``serve`` writes are clean when they are checked as they lie there.

Nothing but the hardware is told: engine, version, nodes and model come out of the files.
"""

from pathlib import Path

import pytest

from k31ctl.catalog.hardware import load_node
from k31ctl.core.rules import Severity
from k31ctl.errors import K31Error
from k31ctl.serve.asked import Place, Target
from k31ctl.serve.files import LaunchFile
from k31ctl.serve.launch_files import launch_files
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import lint_files
from tests.serve.launches import STORE, launch

PLACES = (
    ("kimi-k3", "vllm", "8x-b300", 1),
    ("kimi-k3", "vllm", "8x-h200", 2),
    ("kimi-k3", "vllm", "8x-b200", 2),
    ("kimi-k3", "sglang", "4x-gb300", 2),
    ("kimi-k3", "sglang", "8x-mi355x", 1),
    ("kimi-k3", "tokenspeed", "8x-b200", 2),
    ("kimi-k3.1-pro", "vllm@main", "8x-b300", 1),
    ("kimi-k3.1-pro", "sglang@kimi-k31-pro", "8x-b200", 2),
)
NO_SUCH_FORM = {
    ("tokenspeed", Target.COMPOSE): "no image of tokenspeed",
    ("tokenspeed", Target.KUBERNETES): "no image of tokenspeed",
    ("tokenspeed", Target.DYNAMO): "Dynamo has no worker for tokenspeed",
    ("tokenspeed", Target.KSERVE): "KServe's service is written for one server of vLLM",
    ("sglang", Target.KSERVE): "KServe's service is written for one server of vLLM",
}


def place(num_nodes: int, target: Target) -> Place:
    """The nodes by their addresses where the form must name them."""
    if target is not Target.SYSTEMD or num_nodes == 1:
        return Place(head=None, hosts=(), interface=None)
    hosts = tuple(f"10.0.0.{number}" for number in range(1, num_nodes + 1))
    return Place(head=hosts[0], hosts=hosts, interface="eth0")


def made_files(
    model: str, engine: str, on: str, nodes: int, target: Target, image: str | None
) -> tuple[LaunchFile, ...]:
    """What serve writes."""
    made = launch(
        model, engine, on, nodes=nodes, target=target, image=image, place=place(nodes, target)
    )
    return launch_files(made, target)


@pytest.mark.parametrize(("model", "engine", "on", "nodes"), PLACES)
@pytest.mark.parametrize("target", Target)
def test_what_serve_writes_is_clean_in_its_folder(
    tmp_path: Path, target: Target, model: str, engine: str, on: str, nodes: int
) -> None:
    given = model == "kimi-k3.1-pro" or target is Target.DYNAMO
    image = "registry/kimi:1" if given else None
    refusal = NO_SUCH_FORM.get((engine.partition("@")[0], target))
    if refusal is not None:
        with pytest.raises(K31Error, match=refusal):
            made_files(model, engine, on, nodes, target, image)
        return
    for file in made_files(model, engine, on, nodes, target, image):
        (tmp_path / file.path).write_text(file.text)
    found = lint_files(STORE, [str(tmp_path)], Asked(hardware=on, node=load_node(STORE, on)))
    assert [each.failure for each in found] == [None] * len(found)
    assert sum(len(each.launches) for each in found) >= 1
    worse = [f for each in found for f in each.findings if f.severity is not Severity.INFO]
    assert worse == []


def test_eight_groups_on_a_node_are_clean_and_leave_nothing_in_the_hosts_shared_memory(
    tmp_path: Path,
) -> None:
    made = launch("kimi-k3", "vllm", "8x-b300", nodes=2, target=Target.COMPOSE, tp=1, dp=16, ep=16)
    for file in launch_files(made, Target.COMPOSE):
        (tmp_path / file.path).write_text(file.text)
    composed = (tmp_path / "node0.compose.yaml").read_text()
    assert "shm_size: " in composed
    assert "ipc: host" not in composed
    found = lint_files(STORE, [str(tmp_path)], Asked(node=load_node(STORE, "8x-b300")))
    worse = [f for each in found for f in each.findings if f.severity is not Severity.INFO]
    assert worse == []
