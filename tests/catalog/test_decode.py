import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import StrEnum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.catalog import decode
from k31ctl.errors import ProfileError
from k31ctl.units import Bytes, BytesPerS


class Shape(StrEnum):
    MESH = "mesh"
    SWITCH = "switch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    memory_bytes: Bytes = field(metadata={"key": "memory"})
    memory_bandwidth: BytesPerS
    shape: Shape = Shape.MESH
    rates: Mapping[str, BytesPerS] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    name: str
    count: int
    share: float = 1.0
    on: bool = False
    gpu: Part
    parts: tuple[Part, ...] = ()
    pair: tuple[int, str] | None = None
    per: Literal["gpu", "node"] = "gpu"
    since: date | None = None
    extra: Any = None
    either: int | str = 0

    def __post_init__(self) -> None:
        if self.count == 13:
            raise ValueError("count must not be 13")


GPU = {"memory": "143771 MiB", "memory_bandwidth": "4.8 TB/s"}
WHOLE = {"name": "a", "count": 1, "gpu": GPU}


def read(**changes: object) -> Whole:
    return decode(Whole, {**WHOLE, **changes}, where="a.yaml")


def test_quantities_arrive_in_base_units_and_whole_bytes() -> None:
    found = read().gpu
    assert (found.memory_bytes, found.memory_bandwidth) == (150_754_820_096, 4.8e12)


@pytest.mark.parametrize(
    ("key", "raw", "expected"),
    [
        ("share", 2, 2.0),
        ("on", True, True),
        ("pair", [1, "b"], (1, "b")),
        ("pair", None, None),
        ("per", "node", "node"),
        ("since", date(2026, 11, 29), date(2026, 11, 29)),
        ("since", "2026-11-29", date(2026, 11, 29)),
        ("extra", {"any": [1]}, {"any": [1]}),
        ("either", "text", "text"),
        ("either", 3, 3),
    ],
)
def test_each_annotation_has_its_form(key: str, raw: object, expected: object) -> None:
    assert getattr(read(**{key: raw}), key) == expected


def test_nested_parts_choices_and_mappings_are_read() -> None:
    part = {**GPU, "shape": "switch", "rates": {"bf16": "2 GB/s"}}
    (found,) = read(parts=[part]).parts
    assert (found.shape, found.rates) == (Shape.SWITCH, {"bf16": 2e9})


@pytest.mark.parametrize(
    ("changes", "what", "remedy"),
    [
        (
            {"gpu": {**GPU, "memory_bandwith": 1}},
            "unknown key gpu.memory_bandwith",
            "did you mean gpu.memory_bandwidth?",
        ),
        ({"zzz": 1}, "unknown key zzz", "remove it, or use one of"),
        ({"gpu": {"memory": "1 GB"}}, "missing key gpu.memory_bandwidth", "add gpu."),
        ({"count": True}, "count: True is not a whole number", "write count as"),
        ({"count": "1"}, "count: '1' is not a whole number", "write count as"),
        ({"count": 1.0}, "count: 1.0 is not a whole number", "write count as"),
        ({"share": float("nan")}, "share: nan is not a finite number", "write share"),
        ({"share": 10**400}, "share: a huge number is not a finite number", "write share"),
        ({"name": 5}, "name: 5 is not text", "write name as text"),
        ({"name": None}, "name: null is not text", "write name as text"),
        ({"gpu": {**GPU, "memory": 141}}, "gpu.memory: 141 is not a quantity", "with its unit"),
        ({"gpu": {**GPU, "memory": "141"}}, "gpu.memory: '141' has no unit", "unit, B"),
        ({"gpu": {**GPU, "shape": "ring"}}, "gpu.shape: 'ring' is not one of mesh, switch", ""),
        ({"per": "rack"}, "per: 'rack' is not one of gpu, node", "write per as"),
        ({"parts": [GPU, {}]}, "missing key parts[1].memory", "add parts[1].memory"),
        ({"parts": {}}, "parts: a mapping is not a list", "write parts as a list"),
        ({"pair": [1]}, "pair: a list is not a list of 2", ""),
        ({"since": "yesterday"}, "since: 'yesterday' is not a date", "2026-11-29"),
        ({"gpu": []}, "gpu: a list is not a mapping", "write gpu as a mapping"),
        ({"gpu": {**GPU, "rates": {1: "1 B/s"}}}, "gpu.rates.1: 1 is not text", ""),
        ({"either": []}, "either: a list is not", ""),
        ({"count": 13}, "profile: count must not be 13", "make the values agree"),
    ],
)
def test_the_first_bad_key_is_named_by_its_path(
    changes: dict[str, object], what: str, remedy: str
) -> None:
    with pytest.raises(ProfileError) as caught:
        read(**changes)
    assert what in caught.value.what
    assert remedy in caught.value.remedy
    assert caught.value.where == "a.yaml"


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=20,
)


@given(raw=ANYTHING, key=st.sampled_from(["", *Whole.__dataclass_fields__]))
def test_anything_is_read_or_refused_and_never_a_crash(raw: object, key: str) -> None:
    try:
        found = decode(Whole, {**WHOLE, key: raw} if key else raw, where="a.yaml")
    except ProfileError:
        return
    assert isinstance(found, Whole)


def test_a_profile_of_a_hundred_values_is_read_in_two_milliseconds() -> None:
    raw = {**WHOLE, "parts": [GPU] * 50}
    decode(Whole, raw, where="a.yaml")
    start = time.perf_counter()
    for _ in range(20):
        decode(Whole, raw, where="a.yaml")
    assert (time.perf_counter() - start) / 20 < 0.02  # ten times the aim, for a busy machine
