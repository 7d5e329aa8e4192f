"""Laws of the way from source bytes to written bytes, whatever is chosen and however it is cut."""

import json
import re
import tempfile
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from threading import Event

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import deserialize

from k31ctl.errors import UsageError
from k31ctl.fetch.part_layout import layout_of
from k31ctl.fetch.part_plan import PartRequest
from k31ctl.fetch.partial import fetch_part
from k31ctl.fetch.selection import Chosen, Selection, Slice
from k31ctl.fetch.throttle import Throttle
from tests.fetch.copy_source import CopySource
from tests.fetch.tiny_checkpoint import write_tiny

DTYPE_BYTES = 2


@st.composite
def chosen_tensors(draw: st.DrawFn) -> list[Chosen]:
    """Matrices behind each other with gaps, each whole or a slice of rows or columns."""
    start, found = draw(st.integers(8, 99)), []
    for i in range(draw(st.integers(1, 5))):
        shape = draw(st.integers(1, 6)), draw(st.integers(1, 6))
        axis = draw(st.sampled_from([None, 0, 1]))
        part = None
        if axis is not None:
            first = draw(st.integers(0, shape[axis] - 1))
            part = Slice(axis=axis, first=first, end=draw(st.integers(first + 1, shape[axis])))
        num_bytes = shape[0] * shape[1] * DTYPE_BYTES
        found.append(
            Chosen(
                name=f"t{i}", dtype="BF16", shape=shape, file="a.safetensors", start=start,
                num_bytes=num_bytes, part=part,
            )
        )  # fmt: skip
        start += num_bytes + draw(st.integers(0, 40))
    return found


def cut_by_hand(source: bytes, chosen: Chosen) -> bytes:
    rows, columns = chosen.shape
    first = {0: (0, rows), 1: (0, columns)}
    if chosen.part is not None:
        first[chosen.part.axis] = (chosen.part.first, chosen.part.end)
    return b"".join(
        source[at : at + DTYPE_BYTES]
        for row in range(*first[0])
        for column in range(*first[1])
        for at in [chosen.start + (row * columns + column) * DTYPE_BYTES]
    )


@given(chosen_tensors(), st.randoms(use_true_random=False), st.data())
def test_pieces_in_any_order_and_of_any_length_make_the_file(
    held: list[Chosen], some: object, data: st.DataObject
) -> None:
    size = held[-1].start + held[-1].num_bytes
    source = bytes(data.draw(st.binary(min_size=size, max_size=size)))
    header = type("H", (), {"file": "a.safetensors", "tensors": [*held, None]})()
    layout = layout_of([header], held, {"a.safetensors": size})
    (file,) = layout.files
    written = bytearray(file.head.ljust(file.size_bytes, b"\xee"))
    pieces = []
    for chunk in layout.chunks:
        marks = data.draw(st.sets(st.integers(chunk.start + 1, chunk.end), max_size=6))
        bounds = sorted({chunk.start, *marks, chunk.end})
        pieces += list(pairwise(bounds))
    some.shuffle(pieces)  # type: ignore[attr-defined]
    for start, end in pieces:
        content = b"".join(file.cut(start, memoryview(source)[start:end]))
        place = file.place_of(start)
        assert file.place_of(end) == place + len(content)
        written[place : place + len(content)] = content
    found = dict(deserialize(bytes(written)))  # type: ignore[no-untyped-call]
    assert {name: bytes(view["data"]) for name, view in found.items()} == {
        each.name: cut_by_hand(source, each) for each in held
    }
    assert {n: tuple(v["shape"]) for n, v in found.items()} == {
        each.name: each.written_shape for each in held
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "tiny"
    write_tiny(folder)
    return folder


def tensors(folder: Path) -> dict[str, tuple[str, list[int], bytes]]:
    """What safetensors itself reads of a folder."""
    return {
        name: (view["dtype"], view["shape"], bytes(view["data"]))
        for path in folder.glob("*.safetensors")
        for name, view in deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    }


def number(pattern: str, name: str) -> int | None:
    found = re.search(pattern, name)
    return int(found[1]) if found else None


def numbers_in(pattern: str, names: Iterable[str]) -> set[int | None]:
    return {number(pattern, name) for name in names}


@given(
    layers=st.none() | st.sets(st.integers(0, 4), min_size=1, max_size=3),
    experts=st.none() | st.sets(st.integers(0, 4), min_size=1, max_size=3),
    globs=st.lists(
        st.sampled_from(["*.weight", "*norm*", "vision*", "*w[12].*", "*bias", "*"]), max_size=2
    ),
)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_selection_is_what_safetensors_reads_of_the_source(
    whole: Path, layers: set[int] | None, experts: set[int] | None, globs: list[str]
) -> None:
    def is_wanted(name: str) -> bool:
        expert = number(r"\.experts\.(\d+)\.", name)
        return (
            (layers is None or number(r"layers\.(\d+)\.", name) in layers)
            and (experts is None or expert is None or expert in experts)
            and (not globs or any(Path(name).match(glob) for glob in globs))
        )

    expected = {name: held for name, held in tensors(whole).items() if is_wanted(name)}
    selection = Selection(
        layers=tuple(sorted(layers)) if layers is not None else None,
        experts=tuple(sorted(experts)) if experts is not None else None,
        globs=tuple(globs),
        text="some",
    )
    with tempfile.TemporaryDirectory() as temporary:
        target = Path(temporary) / "part"
        events = fetch_part(
            CopySource(whole),
            PartRequest(revision="", folder=target, selection=selection, connections=3),
            Throttle(limit_bytes_per_s=None, hours=None, stopped=Event()),
            now=lambda: "",
        )
        held = tensors(whole)
        beyond = (layers or set()) - numbers_in(r"layers\.(\d+)\.", held)
        beyond |= (experts or set()) - numbers_in(r"\.experts\.(\d+)\.", held)
        if selection.is_everything or not expected or beyond:
            with pytest.raises(UsageError):
                list(events)
            return
        list(events)
        assert tensors(target) == expected
        index = json.loads((target / "model.safetensors.index.json").read_text())
        assert set(index["weight_map"]) == set(expected)
