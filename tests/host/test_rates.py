"""Rates of this machine: whatever they are, they are rates, and what cannot be measured says so."""

import json
import threading
import time
from datetime import date
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

import k31ctl as package
from k31ctl.catalog.hardware import node_at
from k31ctl.core.figure import Basis
from k31ctl.core.hardware import Node
from k31ctl.core.measured_host import GpuRates, HostRates, Rate, gpu_node, processor_node
from k31ctl.host.disk_rate import Unmeasured, disk_rate
from k31ctl.host.loopback_rate import loopback_rate
from k31ctl.host.memory_rates import memory_rates
from k31ctl.report.hardware import profile_yaml, quantity
from tests.core.catalogs import STORE
from tests.program import program

TODAY = date(2026, 11, 29)
MIB = 2**20


def a_rate(value: float) -> Rate:
    return Rate(value=value, low=value / 2, high=value * 2, how="as the test has it")


def rates(gpus: GpuRates | None = None, matmul: dict[str, Rate] | None = None) -> HostRates:
    return HostRates(
        processor="a processor",
        num_cores=4,
        memory_bytes=64 << 30,
        read=a_rate(48.123456e9),
        copy=a_rate(40e9),
        matmul={"fp32": a_rate(500e9)} if matmul is None else matmul,
        disk=a_rate(2e9),
        disk_folder=".",
        disk_capacity_bytes=10**12,
        loopback=a_rate(3e9),
        gpus=gpus,
        not_measured={},
    )


def test_an_interrupt_leaves_no_thread_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    begin, begun = threading.Thread.start, list[threading.Thread]()

    def interrupted(thread: threading.Thread) -> None:
        if begun:
            raise KeyboardInterrupt
        begun.append(thread)
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        memory_rates(num_cores=2, free_bytes=64 * MIB, repeats=1, clock=time.perf_counter)
    begun[0].join(timeout=10)
    assert not begun[0].is_alive()


def test_an_interrupt_on_loopback_is_told_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    before = set(threading.enumerate())

    def interrupted() -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loopback_rate(repeats=1, clock=interrupted)
    for thread in set(threading.enumerate()) - before:
        thread.join(timeout=10)
    assert not told


def test_copying_counts_what_is_read_and_what_is_written() -> None:
    ticks = iter(range(1, 10_000))
    read, copy = memory_rates(
        num_cores=1, free_bytes=64 * MIB, repeats=3, clock=lambda: next(ticks) * 0.1
    )
    # By a clock that moves 0.1 s a look, each block passes within the same number of looks.
    assert copy.value == pytest.approx(2 * read.value)
    assert "1 blocks of 16 MiB" in read.how


def test_memory_and_loopback_have_rates_with_their_range() -> None:
    found = memory_rates(num_cores=2, free_bytes=64 * MIB, repeats=2, clock=time.perf_counter)
    for one in (*found, loopback_rate(repeats=2, clock=time.perf_counter)):
        assert 1e6 < one.low <= one.value <= one.high


def test_a_disk_is_read_past_the_cache_and_left_as_it_was(tmp_path: Path) -> None:
    try:
        found = disk_rate(
            tmp_path, num_bytes=64 * MIB, repeats=2, filesystem="", clock=time.perf_counter
        )
    except Unmeasured as why:
        pytest.skip(f"the disk of this machine: {why}")
    finally:
        assert list(tmp_path.iterdir()) == []
    assert found.low <= found.value <= found.high
    assert "past the page cache" in found.how


@pytest.mark.parametrize(
    ("folder", "filesystem", "words"),
    [("nowhere", "ext4", "no such file"), (".", "tmpfs", "in memory")],
)
def test_what_is_no_disk_says_why(tmp_path: Path, folder: str, filesystem: str, words: str) -> None:
    with pytest.raises(Unmeasured, match=words):
        disk_rate(
            tmp_path / folder, num_bytes=MIB, repeats=1, filesystem=filesystem, clock=time.time
        )


def test_a_disk_without_room_is_not_filled(tmp_path: Path) -> None:
    with pytest.raises(Unmeasured, match="no room"):
        disk_rate(tmp_path, num_bytes=2**60, repeats=1, filesystem="ext4", clock=time.time)


def test_a_profile_says_again_what_was_measured(tmp_path: Path) -> None:
    node = processor_node(rates(), node_id="host", today=TODAY)
    path = tmp_path / "host.yaml"
    path.write_text(profile_yaml(node))
    found = node_at(path)
    assert found.gpu.achieved_bandwidth_bytes_per_s == pytest.approx(48.123456e9, rel=1e-4)
    assert found.gpu.memory_bytes == 64 << 30
    assert found.marks["gpu.achieved_bandwidth"].basis is Basis.MEASURED
    assert found.marks["gpu.memory_bandwidth"].basis is Basis.ASSUMED
    path.write_text(profile_yaml(found))
    assert node_at(path) == found


@pytest.mark.parametrize(
    ("matmul", "expected", "basis"),
    [
        ({"fp32": a_rate(500e9)}, 500e9, Basis.ASSUMED),
        ({"fp32": a_rate(500e9), "bf16": a_rate(2e9)}, 500e9, Basis.ASSUMED),
        ({"fp32": a_rate(500e9), "bf16": a_rate(900e9)}, 900e9, Basis.MEASURED),
    ],
)
def test_the_faster_of_both_types_is_what_a_processor_computes_with(
    matmul: dict[str, Rate], expected: float, basis: Basis
) -> None:
    node = processor_node(rates(matmul=matmul), node_id="host", today=TODAY)
    assert node.gpu.matmul["bf16"] == expected
    assert node.marks["gpu.matmul.bf16"].basis is basis


def test_measured_gpus_keep_their_peaks_and_get_their_own_rates(tmp_path: Path) -> None:
    gpus = GpuRates(
        name="NVIDIA H200",
        num_gpus=8,
        copy=a_rate(4.2e12),
        matmul={"bf16": a_rate(700e12)},
        link=a_rate(390e9),
        host_link=a_rate(52e9),
    )
    known: Node = node_at(STORE.paths("hardware")["8x-h200"])
    node = gpu_node(known, rates(gpus), node_id="ours", today=TODAY)
    assert node.gpu.memory_bandwidth_bytes_per_s == known.gpu.memory_bandwidth_bytes_per_s
    assert node.gpu.achieved_bandwidth_bytes_per_s == 4.2e12
    assert node.gpu.achieved_matmul["bf16"] == 700e12
    assert node.gpu.achieved_matmul["fp8"] == known.gpu.achieved_matmul["fp8"]
    assert node.scale_up is not None
    assert (node.scale_up.bandwidth_bytes_per_s, node.pcie.bandwidth_bytes_per_s) == (390e9, 52e9)
    path = tmp_path / "ours.yaml"
    path.write_text(profile_yaml(node))
    assert node_at(path) == node


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (48.123456e9, "B/s", "48.123 GB/s"),
        (4.2e12, "B/s", "4.2 TB/s"),
        (0.0, "W", "0.0 W"),
        (1 << 30, "B", "1073741824 B"),
    ],
)
def test_quantities_are_written_with_their_unit(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_bench_hw_writes_a_profile_that_plans(tmp_path: Path) -> None:
    out = tmp_path / "host.yaml"
    done = program(
        *("bench", "hw", "--no-torch", "--disk", str(tmp_path), "--disk-size", "64MiB"),
        *("--out", str(out), "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert "measuring memory" in done.stderr
    document = json.loads(done.stdout)
    schema = Path(package.__file__).parent / "schemas" / "bench-hw.v1.schema.json"
    Draft202012Validator(json.loads(schema.read_text())).validate(document)
    assert document["result"]["profile"] == yaml.safe_load(out.read_text())
    assert document["result"]["rates"]["not_measured"]["gpus"] == "not asked for: --no-torch"
    planned = program("plan", "kimi-linear-48b", "--engine", "embedded", "--on", str(out))
    assert planned.returncode == 0, planned.stderr
    assert "on one host" in planned.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--out", "host.txt"), "ends in .yaml"), (("--disk-size", "1KiB"), "at least 64MiB")],
)
def test_mistakes_are_told_before_anything_is_measured(
    arguments: tuple[str, ...], words: str
) -> None:
    done = program("bench", "hw", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 3
