"""Experts read from the files when they are needed: the same numbers, within a budget."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.expert_budget import Budget
from k31ctl.engine.model import Model
from k31ctl.engine.streamed import ExpertStore, Shelf
from k31ctl.errors import InputError, RefusedError
from tests.engine.conftest import Tiny
from tests.engine.runs import in_pieces, load, prompt

# One expert: 3 matrices of 64 x 64 in MXFP4, 4.25 bits each; spelled out, two bytes each.
STORED, READY = 3 * 64 * 64 * 17 // 32, 3 * 64 * 64 * 4
SHARD = "model-00002-of-000002.safetensors"


def store_of(model: Model) -> ExpertStore:
    assert model.store is not None
    return model.store


@pytest.mark.parametrize("packed", [False, True], ids=["spelled out", "packed"])
@pytest.mark.parametrize("num_experts", [1, 3, 100])
def test_streamed_is_resident_to_the_bit_and_stays_within_its_budget(
    tiny: Tiny, num_experts: int, *, packed: bool
) -> None:
    folder, tokens = tiny("kimi-k3"), prompt(40)
    budget = Budget(host_bytes=num_experts * STORED, device_bytes=num_experts * READY)
    model = load(folder, packed_experts=packed, streamed=budget)
    expected = in_pieces(load(folder, packed_experts=packed), tokens, [30, 1, 1, 8])
    assert torch.equal(in_pieces(model, tokens, [30, 1, 1, 8]), expected)
    stored, ready = store_of(model).most_bytes
    assert 0 < stored <= budget.host_bytes
    assert 0 < ready <= budget.device_bytes


def test_each_expert_is_read_once_where_there_is_room_and_the_next_are_read_ahead(
    tiny: Tiny,
) -> None:
    model = load(tiny("kimi-k3"), streamed=Budget(host_bytes=1 << 30, device_bytes=1 << 30))
    in_pieces(model, prompt(40), [30, 1, 1, 8])
    counts = store_of(model).uses()
    assert counts["read"] + counts["read ahead"] <= 5 * 8
    assert counts["read ahead"] > counts["read"]
    assert counts["ready"] > 0


def test_experts_in_bf16_are_streamed_too(tiny: Tiny) -> None:
    folder, tokens = tiny("kimi-linear"), prompt(20)
    budget = Budget(host_bytes=1 << 18, device_bytes=1 << 18)
    found = in_pieces(load(folder, streamed=budget), tokens, [20])
    assert torch.equal(found, in_pieces(load(folder), tokens, [20]))


def test_a_budget_below_one_expert_is_refused_with_the_bytes_it_takes(tiny: Tiny) -> None:
    model = load(tiny("kimi-k3"), streamed=Budget(host_bytes=1000, device_bytes=READY))
    with pytest.raises(RefusedError, match=f"one expert has {STORED:,} bytes, and 1,000 are"):
        in_pieces(model, prompt(5), [5])


def test_a_file_that_ends_early_is_named(tiny: Tiny, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny("kimi-k3"), tmp_path / "cut")
    model = load(folder, streamed=Budget(host_bytes=STORED, device_bytes=READY))
    in_pieces(model, prompt(5), [5])
    with (folder / SHARD).open("r+b") as file:
        file.truncate(100_000)
    with pytest.raises(InputError, match=f"{SHARD} cannot be read: it ends at byte 100,000") as e:
        in_pieces(model, prompt(40), [40])
    assert "k31ctl verify" in e.value.remedy


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tiny: Tiny, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny("kimi-k3"), tmp_path / "gone")
    model = load(folder, streamed=Budget(host_bytes=STORED, device_bytes=READY))
    in_pieces(model, prompt(5), [5])
    (folder / SHARD).unlink()
    with pytest.raises(InputError, match=f"{SHARD} cannot be read: No such file"):
        in_pieces(model, prompt(40), [40])


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 50))))
def test_a_shelf_never_holds_more_than_it_may(asked: list[tuple[int, int]]) -> None:
    shelf: Shelf[int] = Shelf(100, name="test")
    for key, num_bytes in asked:
        if shelf.get(key) is None:
            assert shelf.put(key, num_bytes, partial(int, num_bytes), sized=int) == num_bytes
        assert shelf.get(key) is not None
        assert shelf.held_bytes <= 100


def test_a_shelf_can_be_used_while_a_value_is_made() -> None:
    shelf: Shelf[int] = Shelf(100, name="test")
    is_made = Event()

    def slow() -> int:
        is_made.wait(60)
        return 1

    with ThreadPoolExecutor(1) as pool:
        making = pool.submit(shelf.put, "slow", 60, slow, sized=lambda _: 60)
        while shelf.held_bytes < 60:
            pass
        assert [shelf.put(key, 40, lambda: 2, sized=lambda _: 40) for key in "ab"] == [2, 2]
        assert (shelf.get("slow"), shelf.get("a"), shelf.get("b")) == (None, None, 2)
        assert shelf.most_bytes == shelf.held_bytes == 100
        is_made.set()
        assert making.result() == shelf.get("slow") == 1


def test_what_cannot_be_made_gives_its_room_back() -> None:
    shelf: Shelf[int] = Shelf(100, name="test")
    with pytest.raises(ZeroDivisionError):
        shelf.put("a", 100, lambda: 1 // 0, sized=int)
    assert shelf.held_bytes == 0


def test_a_file_that_was_replaced_is_named(tiny: Tiny, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny("kimi-k3"), tmp_path / "other")
    model = load(folder, streamed=Budget(host_bytes=STORED, device_bytes=READY))
    in_pieces(model, prompt(5), [5])
    shutil.copyfile(folder / SHARD, folder / "new")
    (folder / "new").rename(folder / SHARD)
    with pytest.raises(InputError, match=f"{SHARD} cannot be read: it is not the file any more"):
        in_pieces(model, prompt(40), [40])
