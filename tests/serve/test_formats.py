"""Compose files and manifests against the schemas of those who read them, and as they read them."""

import re
import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_pydantic import ComposeSpecification
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.errors import UsageError
from k31ctl.serve.asked import Place, Target
from k31ctl.serve.containers import MODEL_FOLDER
from k31ctl.serve.files import LaunchFile
from k31ctl.serve.formats_shell import OPEN_FILES, limit_commands
from k31ctl.serve.launch_files import launch_files
from k31ctl.serve.rollout import NodeValue, Rollout
from tests.serve.launches import launch

KUBERNETES = "1.34.0"
CELLS = [
    ("vllm", "8x-b300", {}),
    ("vllm", "8x-b200", {"nodes": 2}),
    ("vllm", "4x-gb300", {"nodes": 4, "tp": 1, "dp": 16}),
    ("vllm", "8x-mi355x", {}),
    ("sglang", "8x-b300", {}),
    ("sglang", "8x-h100", {"nodes": 4}),
    ("tokenspeed", "4x-gb300", {"nodes": 2, "image": "registry.example/ts:1"}),
]
EVERY_CELL = pytest.mark.parametrize(("engine", "on", "sizes"), CELLS)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
PLACE = Place(head="10.0.0.1", hosts=(), interface="eth7")


def files_of(target: Target, made: Rollout) -> list[LaunchFile]:
    return [f for f in launch_files(made, target) if f.path.endswith("yaml")][:-1]


def manifests(made: Rollout) -> list[dict[str, Any]]:
    (file,) = files_of(Target.KUBERNETES, made)
    return list(yaml.safe_load_all(file.text))


def pods(made: Rollout) -> list[dict[str, Any]]:
    """The pod templates of a manifest, each as a pod of its own."""
    group = next(d for d in manifests(made) if d["kind"] == "LeaderWorkerSet")
    template = group["spec"]["leaderWorkerTemplate"]
    named = [template[k] for k in ("leaderTemplate", "workerTemplate") if k in template]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pod", **pod["metadata"]},
            "spec": pod["spec"],
        }
        for pod in named
    ]


def interpolated(text: str) -> str:
    """What Compose makes of text that holds no variable."""
    assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", text.replace("$$", "")), text
    return text.replace("$$", "$")


@EVERY_CELL
def test_compose_files_meet_the_specification(engine: str, on: str, sizes: dict[str, Any]) -> None:
    made = launch(engine=engine, on=on, target=Target.COMPOSE, **sizes)
    files = files_of(Target.COMPOSE, made)
    assert len(files) == made.num_nodes
    for file in files:
        ComposeSpecification.model_validate(yaml.safe_load(file.text))


@EVERY_CELL
def test_a_node_of_compose_starts_the_words_of_its_rank(
    engine: str, on: str, sizes: dict[str, Any]
) -> None:
    made = launch(engine=engine, on=on, target=Target.COMPOSE, place=PLACE, **sizes)
    server = made.servers[0]
    for rank, file in enumerate(files_of(Target.COMPOSE, made)):
        service = yaml.safe_load(file.text)["services"]["serve"]
        words = [*service["entrypoint"], *service["command"]]
        known = {"rank": str(rank), "head": "10.0.0.1", "interface": "eth7"}
        model = made.weights.repository
        assert [interpolated(word) for word in words] == [
            w.at(known[w.where]) if isinstance(w, NodeValue) else w
            for w in server.words(model, follower=rank > 0)
        ]


@EVERY_CELL
def test_pods_services_and_claims_meet_the_schemas_of_kubernetes(
    engine: str, on: str, sizes: dict[str, Any]
) -> None:
    made = launch(engine=engine, on=on, target=Target.KUBERNETES, **sizes)
    plain = [d for d in manifests(made) if d["kind"] != "LeaderWorkerSet"]
    for document in (*pods(made), *plain):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


@EVERY_CELL
def test_a_leader_worker_set_has_the_fields_of_its_api_and_no_other(
    engine: str, on: str, sizes: dict[str, Any]
) -> None:
    made = launch(engine=engine, on=on, target=Target.KUBERNETES, **sizes)
    group = next(d for d in manifests(made) if d["kind"] == "LeaderWorkerSet")
    assert group["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
    assert set(group["spec"]) <= {"replicas", "startupPolicy", "leaderWorkerTemplate"}
    template = group["spec"]["leaderWorkerTemplate"]
    assert template["size"] == made.num_nodes
    assert template["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert ("leaderTemplate" in template) == (made.num_nodes > 1)


def test_only_the_leader_answers_and_is_asked_and_waited_for() -> None:
    leader, worker = pods(launch(on="8x-b200", nodes=2, target=Target.KUBERNETES))
    first, other = leader["spec"]["containers"][0], worker["spec"]["containers"][0]
    startup = first["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] >= 7200
    assert "startupProbe" not in other
    assert other["command"][-1] == "--headless"
    assert "--headless" not in first["command"]
    assert "$(LWS_WORKER_INDEX)" in other["command"]


def test_a_rank_that_has_to_be_multiplied_is_left_to_a_shell() -> None:
    made = launch(on="4x-gb300", nodes=4, tp=1, dp=16, target=Target.KUBERNETES)
    command = pods(made)[0]["spec"]["containers"][0]["command"]
    assert command[:4] == [
        "/bin/bash",
        "-c",
        'exec "$$@" --data-parallel-start-rank "$$((LWS_WORKER_INDEX * 4))"',
        "serve",
    ]


def test_prometheus_is_told_the_port_where_the_metrics_are() -> None:
    for engine, port in (("vllm", 8000), ("sglang", 30000), ("tokenspeed", 29000)):
        made = launch(engine=engine, place=PLACE)
        (scraped,) = [f for f in launch_files(made, Target.SHELL) if f.path == "prometheus.yaml"]
        (config,) = yaml.safe_load(scraped.text)["scrape_configs"]
        assert config["static_configs"] == [{"targets": [f"10.0.0.1:{port}"]}]


@given(name=NAMES)
@settings(max_examples=12, deadline=None)
def test_a_folder_of_any_name_stays_a_folder(name: str) -> None:
    folder = f"/{name}"
    compose = launch(folder=folder, target=Target.COMPOSE, served_name=f"m{name}")
    (file,) = files_of(Target.COMPOSE, compose)
    service = yaml.safe_load(file.text)["services"]["serve"]
    assert interpolated(service["volumes"][0]["source"]) == folder
    assert f"m{name}" in [interpolated(word) for word in service["command"]]
    (pod,) = pods(launch(folder=folder, target=Target.KUBERNETES, served_name=f"m{name}"))
    assert pod["spec"]["volumes"][0]["hostPath"]["path"] == folder
    command = pod["spec"]["containers"][0]["command"]
    assert f"m{name}" in [word.replace("$$", "$") for word in command]
    assert MODEL_FOLDER in command


@pytest.mark.parametrize("target", [Target.COMPOSE, Target.KUBERNETES])
def test_no_image_is_invented(target: Target) -> None:
    with pytest.raises(UsageError, match=r"no image of tokenspeed 0\.1\.1 is known"):
        launch_files(launch(engine="tokenspeed", target=target), target)


@pytest.mark.parametrize("target", [Target.SHELL, Target.SLURM, Target.COMPOSE, Target.KUBERNETES])
def test_the_same_wish_gives_the_same_bytes(target: Target) -> None:
    assert launch_files(launch(target=target), target) == launch_files(
        launch(target=target), target
    )


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash runs what is tested here")
def test_a_limit_that_is_refused_leaves_the_others() -> None:
    refuses_locked = 'ulimit() { printf "%s\n" "$*"; [[ "$1" != -l ]]; }'
    script = "\n".join(("set -euo pipefail", refuses_locked, *limit_commands()))
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["-l unlimited", f"-n {OPEN_FILES}"]
    assert done.stderr.splitlines() == ["the limit of locked memory stays as it is"]
