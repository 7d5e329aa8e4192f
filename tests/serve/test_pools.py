"""Prefill and decode apart: every format starts both and a router that knows where they are."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_pydantic import ComposeSpecification

from k31ctl.core.asked_pools import AskedPool, AskedPools
from k31ctl.core.launch_form import find_call
from k31ctl.core.read_launch import read_launch
from k31ctl.core.rules import Severity
from k31ctl.errors import RefusedError, UsageError
from k31ctl.serve.asked import Place, Target
from k31ctl.serve.launch_files import launch_files, rollout
from k31ctl.serve.own_findings import own_findings
from k31ctl.serve.rollout import Rollout
from tests.core.catalogs import CATALOGS
from tests.serve.launches import NOWHERE, STORE, asked, parts
from tests.serve.test_shell import ran

AUTO = AskedPools(prefill=None, decode=None)
HOSTS = Place(head=None, hosts=("10.0.0.1", "10.0.0.2"), interface="eth7")
THREE = Place(head=None, hosts=("10.0.0.1", "10.0.0.2", "10.0.0.3"), interface="eth7")
POOL = AskedPool(instances=None, tp=8, pp=None, dp=None, ep=None, dcp=None)
SIZED = AskedPools(prefill=POOL, decode=POOL)
TARGETS = (Target.SHELL, Target.SLURM, Target.COMPOSE, Target.SYSTEMD, Target.KUBERNETES)


def pools(
    target: Target,
    *,
    engine: str = "sglang",
    on: str = "8x-b300",
    place: Place = HOSTS,
    asked_for: AskedPools = AUTO,
) -> Rollout:
    wish = asked(target=target, image="registry.example/engine:1" if engine == "vllm" else None)
    return rollout(parts(engine=engine, on=on), wish, place, asked_for)


def file_texts(made: Rollout, target: Target) -> dict[str, str]:
    return {file.path: file.text for file in launch_files(made, target)}


def test_the_recipes_of_both_roles_are_taken() -> None:
    prefill, decode = pools(Target.SHELL).servers
    assert prefill.recipe is not None
    assert decode.recipe is not None
    assert (prefill.recipe.id, decode.recipe.id) == (
        "sglang-b300-prefill",
        "sglang-b300-decode-balanced",
    )
    assert (prefill.first_node, decode.first_node) == (0, 1)


def test_the_router_is_given_the_port_that_the_prefill_listens_on(
    programs: Path, tmp_path: Path
) -> None:
    made = pools(Target.SHELL)
    (router,) = [f for f in launch_files(made, Target.SHELL) if f.path == "router.sh"]
    words = ["python3", *ran(router, programs, tmp_path)[0][1:]]
    call = find_call(words)
    assert call is not None
    read = read_launch(words, call, CATALOGS["sglang"])
    assert read.problems == ()
    assert read.value("--prefill") == ("http://10.0.0.1:30000", "8998")
    assert read.value("--decode") == ("http://10.0.0.2:30000",)
    flags = {choice.flag: choice.value for choice in made.servers[0].choices}
    assert flags["--disaggregation-bootstrap-port"] == 8998


@pytest.mark.parametrize("target", TARGETS)
def test_every_format_starts_two_pools_and_lints_clean(target: Target) -> None:
    made = pools(target)
    gathered = parts(engine="sglang")
    found = own_findings(STORE, gathered, launch_files(made, target), made)
    assert [f.message for f in found if f.severity is not Severity.INFO] == []
    texts = "".join(file_texts(made, target).values())
    for word in ("--disaggregation-mode", "prefill", "decode", "sglang_router.launch_router"):
        assert word in texts


@pytest.mark.parametrize("target", [*TARGETS, Target.DYNAMO])
def test_vllm_has_two_pools_and_its_own_router_in_every_format(target: Target) -> None:
    made = pools(target, engine="vllm", place=THREE)
    gathered = parts(engine="vllm")
    found = own_findings(STORE, gathered, launch_files(made, target), made)
    assert [f.message for f in found if f.severity is Severity.ERROR] == []
    texts = "".join(file_texts(made, target).values())
    for word in (
        "NixlConnector",
        "VLLM_NIXL_SIDE_CHANNEL_HOST",
        "--enable-hybrid-kv-cache-manager",
    ):
        assert word in texts
    assert any("vLLM issue 52627" in warning for warning in made.warnings)
    assert ("vllm-router" in texts) == (target is not Target.DYNAMO)


def test_vllms_router_is_told_where_both_pools_are(programs: Path, tmp_path: Path) -> None:
    made = pools(Target.SHELL, engine="vllm", place=THREE)
    (router,) = [f for f in launch_files(made, Target.SHELL) if f.path == "router.sh"]
    words = ran(router, programs, tmp_path)[0][1:]
    assert words[:5] == [
        "--vllm-pd-disaggregation",
        "--prefill",
        "http://10.0.0.1:8000",
        "--decode",
        "http://10.0.0.2:8000",
    ]
    prefill, decode = made.servers
    assert made.router is not None
    assert made.router.port not in (prefill.port, decode.port)
    assert "--data-parallel-hybrid-lb" not in {choice.flag for choice in decode.choices}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_graph_of_dynamo_has_workers_for_each_half(engine: str) -> None:
    wish = asked(target=Target.DYNAMO, image="registry.example/runtime:1")
    made = rollout(parts(engine=engine, on="4x-gb300"), wish, NOWHERE, SIZED)
    documents = list(yaml.safe_load_all(launch_files(made, Target.DYNAMO)[0].text))
    (graph,) = [d for d in documents if d["kind"] == "DynamoGraphDeployment"]
    assert [d["kind"] for d in documents].count("ComputeDomain") == 1
    kinds = [component["type"] for component in graph["spec"]["components"]]
    assert kinds == ["frontend", "prefill", "decode"]
    for component in graph["spec"]["components"][1:]:
        spec = component["podTemplate"]["spec"]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        kubernetes_validate.validate(pod, "1.34.0", strict=True)
        words = spec["containers"][0]["command"]
        assert words[words.index("--disaggregation-mode") + 1] == component["type"]


def test_a_router_in_compose_meets_the_specification_and_asks_for_what_it_lacks() -> None:
    made = pools(Target.COMPOSE, place=NOWHERE)
    document = yaml.safe_load(file_texts(made, Target.COMPOSE)["router.compose.yaml"])
    ComposeSpecification.model_validate(document)
    command = document["services"]["router"]["command"]
    meaning = "set it to the address of the first node that does prefill"
    assert f"http://${{PREFILL_ADDRESS:?{meaning}}}:30000" in command


def test_a_router_in_a_cluster_finds_the_services_of_the_pools() -> None:
    made = pools(Target.KUBERNETES, place=NOWHERE)
    documents: list[dict[str, Any]] = list(
        yaml.safe_load_all(file_texts(made, Target.KUBERNETES)["kubernetes.yaml"])
    )
    services = {d["metadata"]["name"]: d for d in documents if d["kind"] == "Service"}
    (router,) = [d for d in documents if d["kind"] == "Deployment"]
    for document in (router, *services.values()):
        kubernetes_validate.validate(document, "1.34.0", strict=True)
    command = router["spec"]["template"]["spec"]["containers"][0]["command"]
    addresses = [word.removeprefix("http://") for word in command if word.startswith("http://")]
    for address in addresses:
        name, port = address.split(":")
        assert int(port) in [p["port"] for p in services[name]["spec"]["ports"]]
    ports = services["kimi-k3-sglang-prefill-http"]["spec"]["ports"]
    assert 8998 in [p["port"] for p in ports]


def test_sizes_that_are_named_are_kept() -> None:
    wide = AskedPool(instances=1, tp=16, pp=None, dp=None, ep=None, dcp=16)
    made = pools(
        Target.SHELL,
        on="8x-b200",
        place=NOWHERE,
        asked_for=AskedPools(
            prefill=AskedPool(instances=None, tp=16, pp=None, dp=None, ep=None, dcp=None),
            decode=wide,
        ),
    )
    assert [server.plan.layout.text for server in made.servers] == ["TP16", "TP16xDCP16"]
    assert [server.num_nodes for server in made.servers] == [2, 2]


def test_pools_that_cannot_be_written_say_why() -> None:
    with pytest.raises(RefusedError, match="nobody has published pools of TokenSpeed"):
        rollout(parts(engine="tokenspeed"), asked(), NOWHERE, AUTO)
    with pytest.raises(UsageError, match="for one server"):
        pools(Target.KSERVE, engine="vllm")
    with pytest.raises(RefusedError, match="no recipe of a prefill pool"):
        pools(Target.SHELL, on="8x-mi355x", place=NOWHERE)
    with pytest.raises(UsageError, match="1 hosts are named for 2 nodes"):
        pools(Target.SHELL, place=Place(head=None, hosts=("a",), interface=None))
