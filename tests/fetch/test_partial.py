"""Parts of a real checkpoint, read back with the safetensors library and compared byte by byte."""

import json
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from threading import Event as Event_

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import deserialize

from k31ctl.catalog import Store, default_folders
from k31ctl.errors import InputError, RefusedError, UsageError
from k31ctl.fetch.events import Event, Finished, Planned
from k31ctl.fetch.findings import Level
from k31ctl.fetch.hub import Hub
from k31ctl.fetch.part_plan import PartRequest
from k31ctl.fetch.partial import fetch_part
from k31ctl.fetch.partial_marker import MARKER_NAME, read_marker, require_whole
from k31ctl.fetch.selection import (
    Chosen,
    Selection,
    Slice,
    byte_ranges,
    numbers,
    rank_of,
)
from k31ctl.fetch.source import HubSource, Source
from k31ctl.fetch.throttle import Throttle
from k31ctl.fetch.verify import Wanted, verify_checkpoint
from tests.fetch.copy_source import CopySource
from tests.fetch.hub_server import REPO, HubServer, running_hub
from tests.fetch.tiny_checkpoint import SHARDS, write_tiny

LAYERS = Selection(layers=(0, 3), text="--layers 0,3")
Tensors = dict[str, tuple[list[int], bytes]]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "tiny"
    write_tiny(folder)
    return folder


def tensors(folder: Path) -> Tensors:
    found: Tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, view in deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
            found[name] = (view["shape"], bytes(view["data"]))
    return found


def going(source: Source, selection: Selection, target: Path) -> Generator[Event, None, None]:
    throttle = Throttle(limit_bytes_per_s=None, hours=None, stopped=Event_())
    request = PartRequest(revision="main", folder=target, selection=selection, connections=2)
    return fetch_part(source, request, throttle, now=lambda: "2026-01-01T00:00:00+00:00")


def part_of(whole: Path, selection: Selection, target: Path) -> Tensors:
    done = list(going(CopySource(whole), selection, target))
    assert isinstance(done[0], Planned)
    assert isinstance(done[-1], Finished)
    assert done[-1].is_proven
    return tensors(target)


def test_layers_are_those_of_the_whole_byte_by_byte(whole: Path, tmp_path: Path) -> None:
    found = part_of(whole, LAYERS, tmp_path / "part")
    expected = {
        name: held
        for name, held in tensors(whole).items()
        if ".layers.0." in name or ".layers.3." in name
    }
    assert found == expected
    assert found


def test_experts_leave_out_other_experts_only(whole: Path, tmp_path: Path) -> None:
    found = part_of(whole, Selection(experts=(1, 2), text="--experts 1-2"), tmp_path / "part")
    left_out = tensors(whole).keys() - found.keys()
    assert left_out
    assert all(".experts.0." in name or ".experts.3." in name for name in left_out)


def test_a_glob_chooses_by_name(whole: Path, tmp_path: Path) -> None:
    found = part_of(whole, Selection(globs=("*.lm_head.*", "*norm.weight")), tmp_path / "part")
    assert all("lm_head" in name or name.endswith("norm.weight") for name in found)
    assert "language_model.lm_head.weight" in found


@pytest.mark.parametrize("pp", [1, 2])
def test_the_ranks_of_a_layout_hold_the_whole_together(
    whole: Path, tmp_path: Path, pp: int
) -> None:
    parts = [
        part_of(whole, Selection(rank=rank_of(r, tp=2, pp=pp)), tmp_path / str(r))
        for r in range(2 * pp)
    ]
    for name, (shape, data) in tensors(whole).items():
        a, b = [part[name] for part in parts if name in part]
        if a[0] == shape:
            assert a == b == (shape, data)
        elif a[0][0] != shape[0]:
            assert a[1] + b[1] == data
        else:
            row, half = len(data) // shape[0], len(data) // shape[0] // 2
            rows = range(0, len(data), row)
            assert a[1] == b"".join(data[at : at + half] for at in rows)
            assert b[1] == b"".join(data[at + half : at + row] for at in rows)


def test_a_part_says_what_it_is_and_is_refused_as_a_whole(whole: Path, tmp_path: Path) -> None:
    part_of(whole, LAYERS, tmp_path / "part")
    marker = read_marker(tmp_path / "part")
    assert marker is not None
    assert (marker["selection"], marker["layers"]) == ("--layers 0,3", [0, 3])
    with pytest.raises(RefusedError, match="a part of a checkpoint: --layers 0,3"):
        require_whole(tmp_path / "part")
    require_whole(whole)


def test_a_part_is_verified_as_a_part(whole: Path, tmp_path: Path) -> None:
    part_of(whole, LAYERS, tmp_path / "part")
    store = Store(default_folders(()))
    found = verify_checkpoint(store, tmp_path / "part", Wanted(deepest=Level.VALUES, num_jobs=1))
    assert (found.is_partial, found.findings) == (True, ())


def test_a_hub_gives_the_same_part_by_ranges(whole: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in whole.iterdir() if path.is_file()}
    with running_hub(HubServer(files=files)) as server:
        hub = Hub(endpoints=[server.url])
        try:
            source = HubSource(hub, hub.snapshot(REPO))
            done = list(going(source, LAYERS, tmp_path / "part"))
        finally:
            hub.stop()
    assert isinstance(done[-1], Finished)
    assert tensors(tmp_path / "part") == part_of(whole, LAYERS, tmp_path / "copy")
    marker = json.loads((tmp_path / "part" / MARKER_NAME).read_text())
    assert (marker["source"], marker["commit"][:6]) == (f"hub:{REPO}", "012345")


def test_a_part_that_fails_leaves_nothing(whole: Path, tmp_path: Path) -> None:
    events = going(CopySource(whole), LAYERS, tmp_path / "part")
    next(events)
    next(events)
    events.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "selection", [Selection(), Selection(layers=(99,)), Selection(globs=("nothing",))]
)
def test_all_or_nothing_is_no_part(whole: Path, tmp_path: Path, selection: Selection) -> None:
    with pytest.raises(UsageError):
        part_of(whole, selection, tmp_path / "part")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_is_not_written_over(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        part_of(whole, LAYERS, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_an_empty_folder_becomes_the_part(whole: Path, tmp_path: Path) -> None:
    assert part_of(whole, LAYERS, tmp_path)


def test_a_broken_source_is_refused(whole: Path, tmp_path: Path) -> None:
    write_tiny(tmp_path / "tiny")
    path = tmp_path / "tiny" / SHARDS[0]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="too short"):
        part_of(tmp_path / "tiny", LAYERS, tmp_path / "part")


def test_a_width_that_does_not_divide_is_refused(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not divide over 3 ranks"):
        part_of(whole, Selection(rank=rank_of(0, tp=3, pp=1)), tmp_path / "part")


@pytest.mark.parametrize(
    ("text", "expected"), [("0-3", (0, 1, 2, 3)), ("5", (5,)), ("7,0-1", (0, 1, 7))]
)
def test_numbers_are_read_as_ranges(text: str, expected: tuple[int, ...]) -> None:
    assert numbers(text, "--layers") == expected


@pytest.mark.parametrize("text", ["", "3-1", "a", "1-", "-1", "0..3", "1" * 9])
def test_other_spellings_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a range"):
        numbers(text, "--layers")


def test_a_rank_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no rank 16 among 16"):
        rank_of(16, tp=8, pp=2)


def chosen(start: int, num_rows: int, part: Slice | None = None) -> Chosen:
    shape = (num_rows, 4)
    return Chosen(
        name=str(start), dtype="U8", shape=shape, file="a", start=start, num_bytes=4 * num_rows,
        part=part,
    )  # fmt: skip


def test_rows_are_read_alone_and_columns_with_their_tensor() -> None:
    rows, columns = Slice(axis=0, first=2, end=4), Slice(axis=1, first=1, end=2)
    assert chosen(100, 8, rows).span == (108, 116)
    assert chosen(100, 8, columns).span == (100, 132)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)), min_size=1, max_size=20))
def test_ranges_cover_every_tensor_and_do_not_touch(places: list[tuple[int, int]]) -> None:
    held = [chosen(start, rows) for start, rows in places]
    ranges = byte_ranges(held)
    assert all(any(r.start <= c.span[0] and c.span[1] <= r.end for r in ranges) for c in held)
    assert all(a.end < b.start for a, b in pairwise(ranges))
