"""AMD's GPUs out of what amd-smi and rocm-smi print."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.host import GpuProcess, PcieLink, Why
from k31ctl.host.amd import amd_gpus, parse_amd_smi, parse_rocm_smi
from k31ctl.host.probe import Missed
from tests.host.machine import Machine, mi355x, recorded

STATIC, METRIC, PROCESS = (
    recorded(f"amd-smi-{name}.json") for name in ("static", "metric", "process")
)


def test_eight_gpus_are_read_by_amd_smi(tmp_path: Path) -> None:
    found = amd_gpus(mi355x(tmp_path).probe())
    assert (found.driver, found.told_by, len(found.gpus)) == ("6.16.6", "amd-smi", 8)
    gpu = found.gpus[0]
    assert (gpu.name, gpu.bus_id, gpu.architecture) == (
        "AMD Instinct MI355X",
        "0000:05:00.0",
        "gfx950",
    )
    assert gpu.memory_bytes == 294_896 * 2**20
    assert (gpu.ecc_uncorrected, gpu.partition, gpu.power_limit_w) == (0, "", 1400.0)
    assert gpu.link == PcieLink(width=16, max_width=16, generation=5, max_generation=5)
    assert gpu.processes == (GpuProcess(pid=42, name="python3", memory_bytes=283_115_520),)
    assert found.gpus[1].processes == ()


def test_the_list_without_gpu_data_of_older_releases_is_the_same() -> None:
    bare = [json.dumps(json.loads(text)["gpu_data"]) for text in (STATIC, METRIC)]
    new = parse_amd_smi(STATIC, metric=METRIC, process=PROCESS)
    assert parse_amd_smi(bare[0], metric=bare[1], process=PROCESS) == new


def test_a_slice_and_uncorrectable_errors_are_told() -> None:
    static = STATIC.replace('"accelerator_partition": "SPX"', '"accelerator_partition": "CPX"', 1)
    metric = METRIC.replace('"total_uncorrectable_count": 0', '"total_uncorrectable_count": 4', 1)
    gpu = parse_amd_smi(static, metric=metric, process=PROCESS).gpus[0]
    assert (gpu.partition, gpu.ecc_uncorrected) == ("CPX", 4)


def test_rocm_smi_stands_in_for_amd_smi(tmp_path: Path) -> None:
    questions = (
        "--showproductname --showmeminfo vram --showbus --showdriverversion "
        "--showcomputepartition --json"
    )
    machine = Machine(tmp_path).tool("rocm-smi", {questions: recorded("rocm-smi.json")})
    found = amd_gpus(machine.probe())
    assert (found.driver, found.told_by) == ("6.8.5", "rocm-smi")
    assert [gpu.partition for gpu in found.gpus] == ["", "CPX"]
    assert (found.gpus[0].architecture, found.gpus[0].bus_id) == ("gfx942", "0000:01:00.0")
    assert (found.gpus[0].memory_bytes, found.gpus[0].used_bytes) == (206_158_430_208, 297_504_768)


def test_a_warning_before_the_document_is_passed_over() -> None:
    assert parse_rocm_smi("WARNING: low power\n" + recorded("rocm-smi.json")).gpus


@pytest.mark.parametrize("text", ["", "Driver not initialized", "{}", "[1]", "null", '{"a": 1}'])
def test_something_else_than_cards_is_missed(text: str) -> None:
    with pytest.raises(Missed):
        parse_rocm_smi(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["gpu", "asic"]), inner),
        max_leaves=10,
    )
)
def test_any_json_is_gpus_or_missed(value: object) -> None:
    text = json.dumps({"gpu_data": value})
    with suppress(Missed):
        parse_amd_smi(text, metric=text, process=text)


def test_no_tool_at_all_is_absent(tmp_path: Path) -> None:
    with pytest.raises(Missed) as caught:
        amd_gpus(Machine(tmp_path).probe())
    assert caught.value.kind is Why.ABSENT


def test_the_kernel_stands_in_for_both_tools(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for number, slot in ((1, "0000:15:00.0"), (2, "0000:05:00.0")):
        at = f"/sys/class/drm/card{number}/device"
        told = {
            "vendor": "0x1002",
            "device": "0x75a3",
            "mem_info_vram_total": str(288 * 2**30),
            "mem_info_vram_used": "297504768",
            "current_compute_partition": "SPX",
            "current_link_width": "16",
            "max_link_width": "16",
            "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={slot}",
        }
        for name, text in told.items():
            machine.file(f"{at}/{name}", f"{text}\n")
    machine.file("/sys/class/drm/card0/device/vendor", "0x1a03\n")
    machine.file("/sys/module/amdgpu/version", "6.16.6\n")
    found = amd_gpus(machine.probe())
    assert (found.told_by, found.driver) == ("sysfs", "6.16.6")
    assert [gpu.bus_id for gpu in found.gpus] == ["0000:05:00.0", "0000:15:00.0"]
    gpu = found.gpus[0]
    assert (gpu.name, gpu.architecture) == ("AMD Instinct MI355X", "gfx950")
    assert (gpu.memory_bytes, gpu.used_bytes) == (288 * 2**30, 297_504_768)
    assert gpu.link == PcieLink(width=16, max_width=16)
