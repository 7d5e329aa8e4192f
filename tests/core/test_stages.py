"""Layers over several devices: where they go, and what each device then holds."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.engines import resolve_engine
from k31ctl.catalog.models import load_model
from k31ctl.core.embedded import Held, Load, MemoryPlan
from k31ctl.core.stages import Place, balanced, staged, together

STORE = Store(default_folders())
MODEL = load_model(STORE, "kimi-k3")
ENGINE = resolve_engine(STORE, "embedded", MODEL)
# Of 288.4 GB that a B300 reports (275,040 MiB), and of 150.8 GB of an H200 (143,771 MiB).
B300, H200 = 275_040 * 2**20, 143_771 * 2**20


def planned(places: list[int], *, layers: range | None = None) -> tuple[MemoryPlan, ...]:
    held = Held(
        layers=layers or range(93),
        with_embedding=layers is None,
        with_head=layers is None,
        element_bytes=2,
        packed_experts=True,
        with_vision=layers is None,
    )
    load = Load(num_requests=8, max_model_len=8192, num_tokens=65_536, chunk_tokens=512)
    named = [Place(device=f"cuda:{n}", free_bytes=free) for n, free in enumerate(places)]
    return staged(MODEL, ENGINE, held, load, places=named, block=12)


def test_kimi_k3_puts_a_block_of_twelve_layers_on_each_of_eight_gpus() -> None:
    stages = planned([B300] * 8)
    assert [len(stage.layers) for stage in stages] == [12] * 7 + [9]
    assert all(stage.fits for stage in stages)
    # Twelve layers are 202.6 GB; the first stage has a dense layer, the embedding and the encoder.
    assert stages[1].weights_bytes == pytest.approx(202.6e9, rel=3e-3)
    # What plan says of a token and of a request, however it is divided.
    assert sum(stage.bytes_per_token for stage in stages) == 27_648
    assert sum(s.state_bytes_per_request for s in stages) == 69 * (6_291_456 + 221_184)
    assert [bool(stage.line_bytes("vision_bytes")) for stage in stages] == [True] + [False] * 7
    assert [bool(stage.line_bytes("logits_bytes")) for stage in stages] == [False] * 7 + [True]


def test_stages_hold_together_what_one_device_would() -> None:
    whole, parts = planned([1 << 42])[0], together(planned([B300] * 8))
    for key in ("weights_bytes", "kv_cache_bytes", "state_bytes", "vision_bytes", "logits_bytes"):
        assert parts.line_bytes(key) == whole.line_bytes(key)
    assert parts.layers == whole.layers
    assert parts.bytes_per_token == whole.bytes_per_token


def test_blocks_are_cut_only_where_whole_ones_do_not_fit() -> None:
    whole = planned([B300] * 2, layers=range(12, 36))
    assert [stage.layers for stage in whole] == [range(12, 24), range(24, 36)]
    cut = planned([H200] * 4, layers=range(12, 36))
    assert [stage.layers.start for stage in cut] == [12, 18, 24, 30]
    assert all(stage.fits for stage in cut)


def test_a_device_without_a_block_gets_no_layers() -> None:
    assert [stage.device for stage in planned([B300] * 3, layers=range(9, 15))] == [
        "cuda:0",
        "cuda:1",
    ]


def test_what_fits_nowhere_is_planned_and_does_not_fit() -> None:
    assert not all(stage.fits for stage in planned([H200] * 8))


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
    st.lists(st.integers(1, 20), min_size=1, max_size=4),
)
def test_no_other_division_has_an_emptier_fullest_room(sizes: list[int], rooms: list[int]) -> None:
    rooms = rooms[: len(sizes)]

    def fullest(counts: tuple[int, ...]) -> float:
        ends = [sum(counts[: n + 1]) for n in range(len(counts))]
        begins = [0, *ends[:-1]]
        parts = zip(begins, ends, rooms, strict=True)
        return max(sum(sizes[begin:end]) / room for begin, end, room in parts)

    found = balanced(sizes, rooms=rooms)
    assert sum(found) == len(sizes)
    assert min(found) >= 1
    cuts = combinations(range(1, len(sizes)), len(rooms) - 1)
    others = [
        tuple(b - a for a, b in zip((0, *cut), (*cut, len(sizes)), strict=True)) for cut in cuts
    ]
    assert fullest(found) == min(map(fullest, others))
