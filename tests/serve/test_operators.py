"""Graphs of Dynamo and services of KServe: their fields, and pods that Kubernetes takes."""

from typing import Any

import kubernetes_validate
import pytest
import yaml

from k31ctl.core.launch_form import find_call
from k31ctl.core.read_launch import read_launch
from k31ctl.errors import UsageError
from k31ctl.serve.asked import Target
from k31ctl.serve.launch_files import launch_files
from k31ctl.serve.rollout import Rollout
from tests.core.catalogs import CATALOGS
from tests.serve.launches import launch

IMAGE = "registry.example/runtime:1"
KUBERNETES = "1.34.0"


def documents(made: Rollout, target: Target) -> dict[str, dict[str, Any]]:
    """The documents of a manifest by their kind."""
    text = launch_files(made, target)[0].text
    return {document["kind"]: document for document in yaml.safe_load_all(text)}


def check_pod(spec: dict[str, Any]) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@pytest.mark.parametrize(
    ("engine", "on", "nodes"),
    [("vllm", "4x-gb300", 2), ("sglang", "8x-b200", 2), ("vllm", "8x-b300", 1)],
)
def test_a_graph_has_a_router_and_a_worker_over_its_nodes(engine: str, on: str, nodes: int) -> None:
    made = launch(engine=engine, on=on, nodes=nodes, target=Target.DYNAMO, image=IMAGE)
    graph = documents(made, Target.DYNAMO)["DynamoGraphDeployment"]
    assert graph["apiVersion"] == "nvidia.com/v1beta1"
    assert graph["spec"]["backendFramework"] == engine
    front, worker = graph["spec"]["components"]
    assert (front["type"], worker["type"]) == ("frontend", "worker")
    assert worker.get("multinode", {"nodeCount": 1}) == {"nodeCount": nodes}
    for component in (front, worker):
        check_pod(component["podTemplate"]["spec"])
        assert component["podTemplate"]["spec"]["containers"][0]["name"] == "main"


def test_the_worker_is_read_by_the_engine_and_told_nothing_that_dynamo_says_itself() -> None:
    made = launch(on="4x-gb300", nodes=2, target=Target.DYNAMO, image=IMAGE)
    graph = documents(made, Target.DYNAMO)["DynamoGraphDeployment"]
    words = graph["spec"]["components"][1]["podTemplate"]["spec"]["containers"][0]["command"]
    call = find_call(words)
    assert call is not None
    assert read_launch(words, call, CATALOGS["vllm"]).problems == ()
    for flag in ("--node-rank", "--master-addr", "--host", "--port", "--headless"):
        assert flag not in words
    assert words[words.index("--dyn-tool-call-parser") + 1] == "kimi_k3"


def test_nvlink_over_nodes_gets_a_compute_domain_and_only_there() -> None:
    rack = documents(
        launch(on="4x-gb300", nodes=2, target=Target.DYNAMO, image=IMAGE), Target.DYNAMO
    )
    claim = rack["ComputeDomain"]["spec"]["channel"]["resourceClaimTemplate"]["name"]
    worker = rack["DynamoGraphDeployment"]["spec"]["components"][1]
    spec = worker["podTemplate"]["spec"]
    assert spec["resourceClaims"][0]["resourceClaimTemplateName"] == claim
    name = spec["resourceClaims"][0]["name"]
    assert spec["containers"][0]["resources"]["claims"] == [{"name": name}]
    boxes = launch(on="8x-b200", nodes=2, target=Target.DYNAMO, image=IMAGE)
    assert "ComputeDomain" not in documents(boxes, Target.DYNAMO)


@pytest.mark.parametrize(
    ("on", "sizes"),
    [("8x-b300", {}), ("8x-b200", {"nodes": 2}), ("4x-gb300", {"nodes": 4, "tp": 4, "dp": 4})],
)
def test_a_service_of_kserve_has_its_sizes_and_pods(on: str, sizes: dict[str, Any]) -> None:
    made = launch(on=on, target=Target.KSERVE, **sizes)
    service = documents(made, Target.KSERVE)["LLMInferenceService"]
    assert service["spec"]["model"]["uri"] == "hf://moonshotai/Kimi-K3"
    layout = made.servers[0].plan.layout
    assert service["spec"]["parallelism"]["tensor"] == layout.tp
    assert ("worker" in service["spec"]) == (made.num_nodes > 1)
    for role in ("template", "worker"):
        if role in service["spec"]:
            check_pod(service["spec"][role])
            assert "/mnt/models" in service["spec"][role]["containers"][0]["command"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"target": Target.DYNAMO}, "no image of vllm 0.33.0 is known"),
        ({"target": Target.KSERVE, "engine": "sglang"}, "for one server of vLLM"),
        ({"target": Target.KSERVE, "folder": "/m"}, "not from a folder"),
        ({"target": Target.DYNAMO, "engine": "tokenspeed"}, "no worker for tokenspeed"),
    ],
)
def test_what_an_operator_cannot_do_is_told(words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        launch_files(launch(**words), words["target"])
