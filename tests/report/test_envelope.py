import json
import math
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path

import pytest

from k31ctl import __version__
from k31ctl.report.envelope import envelope, plain


class Colour(StrEnum):
    RED = "red"


@dataclass(frozen=True)
class Point:
    x: int
    colour: Colour


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1, Colour.RED), {"x": 1, "colour": "red"}),
        ((1, 2.5, None, True), [1, 2.5, None, True]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({Colour.RED: Path("a/b")}, {"red": "a/b"}),
        (date(2026, 11, 29), "2026-11-29"),
    ],
)
def test_core_values_become_plain_ones(value: object, expected: object) -> None:
    assert plain(value) == expected


def test_a_document_has_every_part_and_is_the_same_bytes_in_any_order() -> None:
    text = envelope("plan", inputs={"b": 1, "a": 2}, result={})
    assert text == envelope("plan", inputs={"a": 2, "b": 1}, result={})
    assert json.loads(text) == {
        "schema": "k31ctl/plan/v1",
        "version": __version__,
        "inputs": {"a": 2, "b": 1},
        "result": {},
        "assumptions": [],
        "warnings": [],
    }


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_never_reaches_a_document(value: float) -> None:
    with pytest.raises(ValueError, match="no form in JSON"):
        envelope("plan", inputs={}, result={"x": [value]})
