"""NVIDIA's GPUs out of what nvidia-smi and NVML print."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.host import GpuProcess, HostGpu, Pair, PcieLink, Why
from k31ctl.host.nvidia import nvidia_gpus, parse_nvml, parse_query
from k31ctl.host.nvidia_links import parse_matrix, parse_nvlink, topology
from k31ctl.host.probe import Missed
from tests.host.machine import B300, Machine, b300, query, recorded

HELD = """\
    Processes
        GPU Instance ID                                : N/A
        Compute Instance ID                            : N/A
        Process ID                                     : 4242
            Type                                       : C
            Name                                       : /opt/venv/bin/python
            Used GPU Memory                            : 500 MiB"""


def first(**told: str) -> HostGpu:
    """The first of eight GPUs, of which this is said."""
    return parse_query(query(told)).gpus[0]


def test_eight_healthy_gpus_are_read_in_full() -> None:
    found = parse_query(query())
    assert (found.driver, found.cuda, len(found.gpus)) == ("580.95.05", "13.0", 8)
    assert found.gpus[7] == HostGpu(
        index=7,
        vendor="nvidia",
        name=B300,
        bus_id="0000:08:00.0",
        memory_bytes=275_040 * 2**20,
        used_bytes=0,
        persistence=True,
        ecc_on=True,
        ecc_uncorrected=0,  # the seven of the aggregate are of the GPU's whole life
        link=PcieLink(width=16, max_width=16, generation=5, max_generation=6, host_generation=5),
        power_limit_w=1100.0,
        default_power_limit_w=1100.0,
        fabric="Completed, Success",
    )


def test_what_is_wrong_with_one_gpu_is_read() -> None:
    bad = first(
        persistence="Disabled",
        mig="Enabled",
        recovery="Reset",
        width="4x",
        slowdown="Active",
        used="41000 MiB",
        ecc="Disabled",
        sram="1",
        dram="2",
        remap="Yes",
        power="700.00 W",
        fabric="In Progress",
        status="N/A",
        processes=HELD,
    )
    assert (bad.persistence, bad.partition, bad.recovery) == (False, "MIG", "Reset")
    assert bad.link is not None
    assert (bad.link.width, bad.power_limit_w) == (4, 700.0)
    assert bad.slowed_by == ("HW Slowdown", "HW Thermal Slowdown")
    assert (bad.ecc_on, bad.ecc_uncorrected) == (False, 3)
    assert (bad.repairs, bad.fabric) == (("Remapped Rows Pending",), "In Progress")
    assert bad.used_bytes == 41_000 * 2**20
    assert bad.processes == (
        GpuProcess(pid=4242, name="/opt/venv/bin/python", memory_bytes=500 * 2**20),
    )


def test_driver_535_says_the_same_in_other_places() -> None:
    found = parse_query(recorded("nvidia-smi-q-535.txt"))
    (gpu,) = found.gpus
    assert (found.driver, gpu.name, gpu.bus_id) == ("535.161.08", "NVIDIA H200", "0000:17:00.0")
    assert (gpu.ecc_on, gpu.ecc_uncorrected, gpu.slowed_by) == (True, 3, ("HW Slowdown",))
    assert (gpu.power_limit_w, gpu.default_power_limit_w) == (650.0, 700.0)
    assert gpu.link == PcieLink(width=16, max_width=16, generation=5, max_generation=5)
    assert [p.pid for p in gpu.processes] == [4242, 4243]
    assert gpu.processes[1].memory_bytes is None
    assert gpu.fabric == ""


def test_a_driver_without_gpus_lists_none() -> None:
    assert parse_query(recorded("nvidia-smi-q-head.txt")).gpus == ()


@pytest.mark.parametrize("text", ["", "No devices were found\n", "\x00\xff garbage", "{}"])
def test_something_else_than_a_query_is_missed(text: str) -> None:
    with pytest.raises(Missed, match="something else"):
        parse_query(text)


@given(st.text(), st.integers(min_value=0))
def test_a_query_with_garbage_in_it_never_fails_otherwise(garbage: str, place: int) -> None:
    text = query(count=1)
    at = place % len(text)
    with suppress(Missed):
        parse_query(text[:at] + garbage + text[at:])
    parse_matrix(garbage)
    parse_nvlink(garbage)


def test_the_matrix_has_every_pair_once_and_all_cards() -> None:
    pairs = parse_matrix(recorded("nvidia-smi-topo-m.txt"))
    between = [p for p in pairs if p.second.startswith("GPU")]
    assert len(between) == 8 * 7 // 2
    assert {p.link for p in between} == {"NV18"}
    assert Pair(first="GPU5", second="NIC5", link="PXB") in pairs
    assert Pair(first="GPU0", second="NIC7", link="SYS") in pairs
    assert len(pairs) == 28 + 64


def test_a_matrix_in_colour_is_read_too() -> None:
    text = "\x1b[4m\tGPU0\tGPU1\tCPU Affinity\x1b[0m\nGPU0\t X \tSYS\t0-7\nGPU1\tSYS\t X \t0-7\n"
    assert parse_matrix(text) == (Pair(first="GPU0", second="GPU1", link="SYS"),)


def test_links_that_are_down_are_told_by_number() -> None:
    text = recorded("nvidia-smi-nvlink-s.txt").replace(
        "\t Link 3: 53.125 GB/s", "\t Link 3: <inactive>", 1
    )
    found = parse_nvlink(text)
    assert (found[0].num_active, found[0].inactive) == (17, (3,))
    assert (found[7].num_active, found[7].inactive, found[7].rate_gb_per_s) == (18, (), 53.125)


def test_the_topology_of_a_machine_comes_from_three_questions(tmp_path: Path) -> None:
    found = topology(b300(tmp_path).probe())
    assert (len(found.gpu_pairs), len(found.nic_pairs), len(found.links)) == (28, 64, 8)
    assert found.unreachable == ()


def test_pairs_without_peer_access_are_told(tmp_path: Path) -> None:
    machine = b300(tmp_path)
    text = recorded("nvidia-smi-topo-p2p.txt").replace(" GPU0\tX\tOK", " GPU0\tX\tCNS")
    matrix = recorded("nvidia-smi-topo-m.txt")
    machine.tool("nvidia-smi", {"topo -m": matrix, "topo -p2p r": text})
    found = topology(machine.probe())
    assert found.unreachable == (Pair(first="GPU0", second="GPU1", link="CNS"),)
    assert found.links == ()  # this nvidia-smi knows no nvlink -s


def test_nvml_answers_where_there_is_no_nvidia_smi() -> None:
    told = {
        "driver": "580.95.05",
        "gpus": [
            {
                "name": "NVIDIA H200",
                "bus_id": "00000000:17:00.0",
                "memory_bytes": 5,
                "used_bytes": 2,
                "persistence": True,
                "mig": True,
                "ecc_on": None,
                "ecc_uncorrected": None,
                "processes": [[42, 2]],
            }
        ],
    }
    (gpu,) = parse_nvml(json.dumps(told)).gpus
    assert (gpu.bus_id, gpu.partition, gpu.processes[0].pid) == ("0000:17:00.0", "MIG", 42)
    with pytest.raises(Missed, match="not known"):
        parse_nvml('{"gpus": [{}]}')


def test_a_machine_without_nvidia_s_device_is_not_asked(tmp_path: Path) -> None:
    with pytest.raises(Missed, match="neither nvidia-smi nor a device") as caught:
        nvidia_gpus(Machine(tmp_path).probe())
    assert caught.value.kind is Why.ABSENT


def test_nvml_s_library_is_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    machine = Machine(tmp_path).file("/dev/nvidiactl")
    try:
        found = nvidia_gpus(machine.probe())
    except Missed as missed:
        assert "NVML" in missed.why
        assert missed.kind in (Why.ABSENT, Why.FAILED)
    else:
        assert found.told_by == "NVML"
