from dataclasses import fields, is_dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from k31ctl.catalog import Kind, Store, default_folders, load_node
from k31ctl.catalog.check import check_profiles
from k31ctl.catalog.store import files_in, packaged_folder, read_profile
from k31ctl.core.hardware import Node

STORE = Store(default_folders())
NODES = {profile_id: load_node(STORE, profile_id) for profile_id in STORE.ids(Kind.HARDWARE)}
FILES = [file for kind in Kind for file in files_in(packaged_folder(), kind)]
EVERY_FILE = pytest.mark.parametrize(
    "file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}"
)
EVERY_NODE = pytest.mark.parametrize("node", NODES.values(), ids=NODES.keys())


@EVERY_FILE
def test_every_packaged_profile_is_sound(file: Path) -> None:
    assert check_profiles(default_folders(), [file]).findings == ()


def values_of(raw: object, key: str) -> list[Any]:
    """Every value under this key, at any depth."""
    match raw:
        case dict():
            own = [raw[key]] if key in raw else []
            return own + [found for value in raw.values() for found in values_of(value, key)]
        case list():
            return [found for value in raw for found in values_of(value, key)]
        case _:
            return []


@EVERY_FILE
def test_every_packaged_profile_cites_a_source_with_its_date(file: Path) -> None:
    raw = read_profile(file)
    assert all(values_of(raw, "source") + values_of(raw, "sources"))
    dates = [date.fromisoformat(str(found)) for found in values_of(raw, "checked")]
    assert dates
    assert min(dates) >= date(2026, 1, 1)


@EVERY_NODE
def test_every_hardware_source_is_an_address(node: Node) -> None:
    assert all(source.url.startswith("https://") for source in (node.gpu.source, *node.sources))


@pytest.mark.parametrize(
    "profile_id",
    [
        *["8x-b300", "8x-b200", "4x-gb300", "4x-gb200", "8x-h200", "8x-h100", "8x-h20-3e"],
        *["8x-mi355x", "8x-mi350x", "8x-rtx-pro-6000", "gb300-nvl72", "gb200-nvl72"],
    ],
)
def test_every_promised_system_has_a_profile(profile_id: str) -> None:
    assert int(NODES[profile_id].num_gpus) in {4, 8, 72}


def keys_of(value: object, prefix: str = "") -> set[str]:
    """Every key path of a decoded profile, as its YAML spells them."""
    if not is_dataclass(value):
        return set()
    found = set()
    for entry in fields(value):
        key = prefix + entry.metadata.get("key", entry.name)
        found |= {key} | keys_of(getattr(value, entry.name), key + ".")
    return found


@EVERY_NODE
def test_every_mark_is_on_a_key_that_exists(node: Node) -> None:
    assert set(node.marks) <= keys_of(node)


@EVERY_NODE
def test_nothing_achieved_is_more_than_its_peak(node: Node) -> None:
    gpu = node.gpu
    assert (gpu.achieved_bandwidth_bytes_per_s or 0) <= gpu.memory_bandwidth_bytes_per_s
    assert (gpu.expert_bandwidth_bytes_per_s or 0) <= gpu.memory_bandwidth_bytes_per_s
    assert all(rate <= gpu.matmul[name] for name, rate in gpu.achieved_matmul.items())


@EVERY_NODE
def test_four_bit_weights_with_eight_bit_activations_run_at_the_eight_bit_rate(node: Node) -> None:
    matmul = node.gpu.matmul
    assert matmul.get("mxfp4", matmul["fp8"]) == matmul["fp8"]


@EVERY_NODE
def test_what_is_achieved_says_how_it_is_known(node: Node) -> None:
    named = keys_of(node) & {"gpu.achieved_bandwidth", "disks.read_bandwidth"}
    assert all(key in node.marks or key.split(".")[0] in node.marks for key in named)


def test_eight_mi355x_hold_seven_percent_more_than_eight_b300() -> None:
    ratio = NODES["8x-mi355x"].memory_bytes / NODES["8x-b300"].memory_bytes
    assert ratio == pytest.approx(1.07, abs=0.005)  # 288 GiB against 275,040 MiB


@pytest.mark.parametrize(
    ("profile_id", "num_gpus", "domain"),
    [("4x-gb300", 4, 72), ("gb300-nvl72", 72, 72), ("8x-b300", 8, 8), ("8x-rtx-pro-6000", 8, 1)],
)
def test_the_scale_up_domain_is_counted_apart_from_the_node(
    profile_id: str, num_gpus: int, domain: int
) -> None:
    node = NODES[profile_id]
    assert (node.num_gpus, node.scale_up_domain_gpus) == (num_gpus, domain)


@pytest.mark.parametrize("num_gpus", [0, -8, 4097, 10**9])
def test_a_node_of_no_or_of_countless_gpus_is_refused(num_gpus: int) -> None:
    usual = load_node(STORE, "8x-b300")
    with pytest.raises(ValueError, match="from 1 to 4096"):
        replace(usual, num_gpus=num_gpus)
