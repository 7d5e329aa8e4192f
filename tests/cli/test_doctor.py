"""``k31ctl doctor`` as a process, on machines of files and on the one that runs this."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package
from k31ctl.core.host_rule import Rule
from k31ctl.core.readiness import RULES
from tests.host.machine import SLEEP, Machine, b300, bare, mi355x
from tests.program import program

Run = Callable[..., subprocess.CompletedProcess[str]]
Doctor = Callable[..., subprocess.CompletedProcess[str]]
SCHEMA = Path(package.__file__).parent / "schemas" / "doctor.v1.schema.json"
K3 = ("--model", "kimi-k3", "--engine", "vllm@0.33.0")


def on(machine: Machine, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program on a machine of files, with that machine's tools alone."""
    return program(
        *("doctor", "--root", str(machine.root), *arguments),
        environment={
            "PATH": str(machine.bin),
            "HOME": "/root",
            "PYTHONPATH": os.pathsep.join(sys.path),
            **environment,
        },
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The document that was printed, which meets the schema."""
    found: dict[str, Any] = json.loads(done.stdout)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(found)
    return found


def test_a_healthy_node_is_ready(tmp_path: Path) -> None:
    done = on(b300(tmp_path), *K3, "--on", "8x-b300")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Ready to serve Kimi K3 with vLLM 0.33.0, as far as was checked.")
    assert "8 x NVIDIA B300 SXM6 AC, driver 580.95.05" in done.stdout.replace("\n", " ")
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_everything_that_is_measured_is_in_the_document(tmp_path: Path) -> None:
    result = document(on(b300(tmp_path), *K3, "--json"))["result"]
    assert (result["ready"], result["findings"]) == (True, [])
    assert [check["id"] for check in result["checks"]] == [rule.id for rule in RULES]
    assert len(result["host"]["gpus"]["gpus"]) == 8
    assert result["measured"]["nvlink_links"]["num_links"] == 18
    assert result["host"]["rdma"]["ports"][0]["rate_gbit_per_s"] == 800.0


def test_an_amd_node_is_ready_too(tmp_path: Path) -> None:
    done = on(mi355x(tmp_path), *K3, "--on", "8x-mi355x", "--json")
    assert (done.returncode, document(done)["result"]["findings"]) == (0, [])


@pytest.mark.parametrize(
    ("first", "ids"),
    [
        ({"dram": "1"}, ["gpu-ecc-errors"]),
        ({"mig": "Enabled"}, ["gpu-whole"]),
        ({"fabric": "In Progress", "status": "N/A"}, ["fabric-manager"]),
        ({"used": "200000 MiB"}, ["gpu-memory-free"]),
        ({"name": "NVIDIA H200", "total": "143771 MiB"}, ["gpu-kind"]),
        ({"remap": "Yes"}, ["gpu-repairs"]),
    ],
)
def test_a_fault_of_one_gpu_is_exit_4_with_the_way_out(
    tmp_path: Path, first: dict[str, str], ids: list[str]
) -> None:
    done = on(b300(tmp_path, **first), *K3, "--json")
    assert done.returncode == 4
    findings = document(done)["result"]["findings"]
    assert [f["id"] for f in findings if f["severity"] == "error"] == ids
    assert done.stderr.splitlines()[0] == "error: this machine is not ready: 1 error"
    assert ids[0] in done.stderr


def test_problems_come_first_with_remedy_and_source(tmp_path: Path) -> None:
    text = on(b300(tmp_path, mig="Enabled", persistence="Disabled"), *K3).stdout
    assert text.startswith("Not ready to serve Kimi K3 with vLLM 0.33.0: 1 error, 1 warning.")
    order = [text.index(word) for word in ("errors: 1", "warnings: 1", "fine: ", "next: mend")]
    assert order == sorted(order)
    assert "    do: nvidia-smi -mig 0" in text


def test_a_driver_that_hangs_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    machine = b300(tmp_path)
    machine.script("nvidia-smi", f"exec {SLEEP} 3600")
    done = on(machine, *K3, "--timeout", "2", "--json")
    (finding,) = [f for f in document(done)["result"]["findings"] if f["severity"] == "error"]
    assert finding["id"] == "gpu-driver-answers"
    assert "nvidia-smi -q did not answer in time" in finding["message"]


@pytest.mark.parametrize(
    "body",
    [
        "exit 9",
        "echo 'NVIDIA-SMI has failed'; exit 9",
        r"printf '\377\376\000garbage'",
        "while :; do echo 0123456789012345678901234567890123456789; done",
    ],
)
def test_a_mad_nvidia_smi_is_an_error_without_a_traceback(tmp_path: Path, body: str) -> None:
    machine = b300(tmp_path)
    machine.script("nvidia-smi", body)
    done = on(machine, *K3, "--json")
    assert done.returncode == 4
    ids = [f["id"] for f in document(done)["result"]["findings"] if f["severity"] == "error"]
    assert ids == ["gpu-driver-answers"]
    assert "Traceback" not in done.stderr


def test_a_machine_of_nothing_but_an_empty_folder_answers(tmp_path: Path) -> None:
    done = on(Machine(tmp_path), *K3, "--json")
    result = document(done)["result"]
    assert done.returncode == 4
    assert [f["id"] for f in result["findings"] if f["severity"] == "error"] == ["gpu-present"]


def test_a_machine_without_a_gpu_is_checked_for_the_rest(tmp_path: Path) -> None:
    done = on(bare(tmp_path), *K3, "--skip", "gpu-present")
    assert done.returncode == 0
    assert "host-memory" in done.stdout


def test_two_nodes_ask_for_an_interface_and_for_rdma(tmp_path: Path) -> None:
    machine = b300(tmp_path)
    machine.file("/sys/class/net/eth1/operstate", "up\n")
    machine.file("/sys/class/net/eth1/device/vendor", "0x15b3\n")
    machine.file("/etc/hosts", "127.0.1.1 node1\n")
    wanted = (*K3, "--nodes", "2", "--json")
    ids = {f["id"] for f in document(on(machine, *wanted))["result"]["findings"]}
    assert ids == {"network-interface", "network-own-name"}
    environment = {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "eth1"}
    pinned = on(machine, *wanted, VLLM_HOST_IP="10.0.0.1", **environment)
    assert pinned.returncode == 0


def test_a_port_that_is_taken_and_a_peer_that_is_there_are_seen(k31ctl: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = f"127.0.0.1:{server.getsockname()[1]}"
        done = k31ctl("doctor", "--only", "peers-reachable", "--peers", there, "--json")
    (check,) = document(done)["result"]["checks"]
    assert (done.returncode, check["status"], check["measured"]["num_reached"]) == (0, "pass", 1)


def test_a_weights_folder_is_measured_and_fetch_is_what_comes_next(
    tmp_path: Path, k31ctl: Run
) -> None:
    done = k31ctl("doctor", "--only", "weights-folder", "--weights", str(tmp_path), *K3)
    assert done.returncode == 0
    assert done.stdout.endswith(f"next: k31ctl fetch kimi-k3 --to {tmp_path}\n")
    lost = k31ctl("doctor", "--only", "weights-folder", "--weights", str(tmp_path / "no"), "--json")
    assert lost.returncode == 4
    assert "no such file" in document(lost)["result"]["findings"][0]["message"]


def test_this_machine_is_described_whatever_it_is(k31ctl: Run) -> None:
    done = k31ctl("doctor", "--json")
    result = document(done)["result"]
    assert done.returncode == (0 if result["ready"] else 4)
    assert len(result["checks"]) == len(RULES)
    assert all(check["detail"] for check in result["checks"])


def test_a_named_interpreter_is_asked_for_its_engine(tmp_path: Path) -> None:
    machine = b300(tmp_path)
    machine.script("python3.12", """echo '{"vllm": "0.20.0", "tiktoken": "0.12.0"}'""")
    interpreter = str(machine.bin / "python3.12")
    result = document(on(machine, *K3, "--python", interpreter, "--json"))["result"]
    assert [f["id"] for f in result["findings"]] == ["engine-version", "engine-vocabulary"]
    assert result["host"]["software"]["interpreter"] == interpreter


def test_gates_read_the_counts_and_what_was_measured(tmp_path: Path) -> None:
    machine = b300(tmp_path, persistence="Disabled")
    assert on(machine, *K3, "--gate", "num_warnings==0").returncode == 4
    assert on(machine, *K3, "--gate", "num_links>=18").returncode == 0
    assert on(machine, *K3, "--gate", "nothing==0").returncode == 2


def test_markdown_is_a_table_that_no_text_can_break(tmp_path: Path) -> None:
    machine = b300(tmp_path, name="NVIDIA | <b>X</b>")
    done = on(machine, *K3, "--markdown", "-")
    assert done.stdout.startswith("# Not ready to serve Kimi K3")
    assert "NVIDIA \\| &lt;b>X" in done.stdout
    assert on(machine, *K3, "--markdown", "-", "--json").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "gpu-drivers"), "did you mean gpu-driver?"),
        (("--skip", "x"), "checks are: gpu-present"),
        (("--peers", "node2"), "'node2' is not a host and a port"),
        (("--peers", "node2:99999"), "'node2:99999' is not a host and a port"),
        (("--peers", ","), "'' is not a host and a port"),
        (("--timeout", "0"), "0.0 is not between 0.1 and 600"),
        (("--nodes", "0"), "0 is not between 1 and"),
    ],
)
def test_a_mistake_is_exit_2_with_the_way_out(
    k31ctl: Run, arguments: tuple[str, ...], words: str
) -> None:
    done = k31ctl("doctor", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


@pytest.mark.parametrize("arguments", [("--on", "8x-z9"), ("--model", "nothing")])
def test_what_no_profile_knows_is_told_before_anything_is_asked(
    k31ctl: Run, arguments: tuple[str, ...]
) -> None:
    done = k31ctl("doctor", *arguments)
    assert (done.returncode, done.stdout) == (3, "")


def snapshot(folder: Path) -> dict[str, tuple[int, int, int, int]]:
    """Mode, size and times of everything below a folder, without following links."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        told = path.lstat()
        found[str(path)] = (told.st_mode, told.st_size, told.st_mtime_ns, told.st_ctime_ns)
    return found


def test_nothing_is_changed_on_the_machine(tmp_path: Path) -> None:
    for name in ("machine", "models", "home", "work"):
        (tmp_path / name).mkdir()
    machine = b300(tmp_path / "machine")
    (tmp_path / "models" / "model.safetensors").write_bytes(os.urandom(2**20) * 64)
    home = str(tmp_path / "home")
    before = snapshot(tmp_path)
    arguments = ("--weights", str(tmp_path / "models"), "--peers", "127.0.0.1:1", "--nodes", "2")
    done = on(machine, *K3, *arguments, HOME=home, TMPDIR=home, XDG_CACHE_HOME=home)
    assert "reads at" in done.stdout
    assert snapshot(tmp_path) == before


_WATCHED = """
import os, sys
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("mkdir", "remove", "rename", "rmdir", "chmod", "chown", "link", "symlink", "truncate",
           "utime", "setxattr", "removexattr", "kill")
def watch(event, arguments):
    if event == "open" and arguments[2] & WRITES and arguments[0] != os.devnull:
        os.write(2, f"CHANGED {event} {arguments[0]}".encode())
    if event.startswith("os.") and event[3:] in CHANGES:
        os.write(2, f"CHANGED {event} {arguments}".encode())
sys.addaudithook(watch)
from k31ctl.cli.main import main
main()
"""


def test_the_program_asks_for_no_change_of_the_real_machine(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(os.urandom(2**20) * 64)
    command = [sys.executable, "-B", "-c", _WATCHED, "doctor", "--weights", str(tmp_path)]
    done = subprocess.run(
        [*command, "--nodes", "2", "--peers", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode in (0, 4)
    assert "CHANGED" not in done.stderr
    assert "weights-folder" in done.stdout


def test_gpus_with_one_and_the_same_fault_are_told_together(tmp_path: Path) -> None:
    machine = b300(tmp_path)
    query = (machine.bin / ".nvidia-smi.0").read_text()
    (machine.bin / ".nvidia-smi.0").write_text(
        query.replace(": 16x\n        Replays", ": 8x\n        Replays")
    )
    text = on(machine, *K3).stdout
    assert text.count("gpu-pcie") == 1
    assert "GPU 3 (0000:04:00.0) and 4 more" in text.replace("\n  ", " ")


PAGE = Path(package.__file__).parents[1] / "docs" / "doctor.md"
SHOWN = (
    "gpu-present",
    "gpu-driver",
    "gpu-whole",
    "gpu-persistence",
    "nvlink-pairs",
    "host-memory",
    "weights-folder",
)


def test_the_page_shows_what_the_program_says(tmp_path: Path) -> None:
    machine = b300(tmp_path, mig="Enabled", persistence="Disabled")
    only = [word for name in SHOWN for word in ("--only", name)]
    done = on(machine, *K3, "--on", "8x-b300", *only)
    assert f"{done.stdout}{done.stderr}{done.returncode}\n" in PAGE.read_text()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_page_has_every_check(rule: Rule) -> None:
    passes = (rule.judge.__doc__ or "").strip()
    row = f"| `{rule.id}` | {rule.severity} | {passes} | {rule.source} |"
    assert row in PAGE.read_text().splitlines()
