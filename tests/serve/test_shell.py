"""The scripts as the shell runs them: an engine that prints its arguments stands in the path."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.serve.asked import Place, Target
from k31ctl.serve.files import LaunchFile
from k31ctl.serve.launch_files import launch_files
from k31ctl.serve.rollout import NodeValue, Rollout, Server, Where
from tests.serve.launches import launch

HOSTILE = (
    "/data/kimi k3",
    "/data/'; touch owned; '",
    '/data/"$(touch owned)"`touch owned`',
    "/data/\n--trust\n#",
    "/data/%h%%$HOME${HOME}$(HOME)\\",
    "/data/кими-三",
    "/data/*?[a]{b,c}~!",
)
PATHS = st.one_of(
    st.sampled_from(HOSTILE),
    st.text(
        st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=30
    ).map(lambda text: "/" + text),
)
KNOWN = {
    Where.RANK: "1",
    Where.HEAD: "10.0.0.1",
    Where.NODE_ADDRESS: "10.0.0.2",
    Where.INTERFACE: "eth7",
}


def ran(
    file: LaunchFile, programs: Path, folder: Path, **environment: str
) -> tuple[list[str], dict[str, str]]:
    """The arguments and the environment that the engine was started with."""
    path = folder / file.path
    path.write_text(file.text, encoding="utf-8")
    done = subprocess.run(
        ["bash", str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        timeout=60,
        env={"PATH": f"{programs}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", **environment},
    )
    arguments, variables = json.loads(done.stdout)
    assert sorted(p.name for p in folder.iterdir()) == [file.path]
    path.unlink()
    return arguments, variables


def expected(made: Rollout, server: Server, *, follower: bool) -> list[str]:
    """The words of the server on a node of which everything is known."""
    words = server.words(made.model, follower=follower)
    return [w.at(KNOWN[w.where]) if isinstance(w, NodeValue) else w for w in words]


def script_of(made: Rollout) -> LaunchFile:
    return launch_files(made, Target.SHELL)[0]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tokenspeed"])
@given(path=PATHS)
@settings(max_examples=15, deadline=None)
def test_a_folder_of_any_name_is_one_argument_and_never_code(
    engine: str, path: str, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    made = launch(engine=engine, folder=path, served_name="a 'b' $(c)")
    arguments, _ = ran(script_of(made), programs, tmp_path_factory.mktemp("run"))
    assert arguments[1:] == expected(made, made.servers[0], follower=False)[1:]
    assert path in arguments
    assert "a 'b' $(c)" in arguments


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("engine", "on", "sizes"),
    [
        ("vllm", "8x-b200", {"nodes": 2}),
        ("vllm", "4x-gb300", {"nodes": 4, "tp": 4, "dp": 4}),
        ("vllm", "4x-gb300", {"nodes": 4, "tp": 1, "dp": 16}),
        ("sglang", "8x-b200", {"nodes": 2}),
        ("tokenspeed", "4x-gb300", {"nodes": 2}),
    ],
)
def test_every_node_of_several_gets_its_own_words(
    engine: str, on: str, sizes: dict[str, Any], rank: int, programs: Path, tmp_path: Path
) -> None:
    made = launch(engine=engine, on=on, **sizes)
    server = made.servers[0]
    arguments, variables = ran(
        script_of(made),
        programs,
        tmp_path,
        RANK=str(rank),
        HEAD_ADDRESS="10.0.0.1",
        NODE_ADDRESS="10.0.0.2",
        NETWORK_INTERFACE="eth7",
    )
    words = server.words(made.model, follower=rank > 0)
    known = {**KNOWN, Where.RANK: str(rank)}
    assert (
        arguments[1:]
        == [w.at(known[w.where]) if isinstance(w, NodeValue) else w for w in words][1:]
    )
    for variable in server.variables:
        value = variable.value
        text = value.at(known[value.where]) if isinstance(value, NodeValue) else value
        assert variables[variable.name] == text
    assert ("--headless" in arguments) == (engine == "vllm" and rank > 0)


def test_slurm_says_the_rank_and_known_hosts_need_not_be_said_again(
    programs: Path, tmp_path: Path
) -> None:
    place = Place(head="first.example", hosts=(), interface="eth7")
    made = launch(on="8x-b200", nodes=2, place=place)
    node = next(f for f in launch_files(made, Target.SLURM) if f.path == "node.sh")
    arguments, variables = ran(node, programs, tmp_path, SLURM_NODEID="1")
    at = arguments.index("--node-rank")
    assert arguments[at + 1] == "1"
    assert arguments[arguments.index("--master-addr") + 1] == "first.example"
    assert variables["NCCL_SOCKET_IFNAME"] == "eth7"


def test_a_node_that_is_not_told_its_rank_stops_and_says_so(programs: Path, tmp_path: Path) -> None:
    path = tmp_path / "launch.sh"
    path.write_text(script_of(launch(on="8x-b200", nodes=2)).text)
    done = subprocess.run(
        ["bash", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "give the rank of this node" in done.stderr
