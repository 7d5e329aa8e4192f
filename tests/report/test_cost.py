"""A cost as text and as numbers under promised names."""

import json

import pytest

from k31ctl.core.costing import Unpriced
from k31ctl.core.prices import Term
from k31ctl.report.cost_document import cost_document
from k31ctl.report.cost_text import cost_summary, cost_text
from k31ctl.report.envelope import plain
from tests.core.test_cost import asked, priced

CASES: dict[str, dict[str, object]] = {
    "preset": {},
    "seller": {"provider": "aws", "api": "moonshot/highspeed"},
    "committed": {"term": Term.THREE_YEAR},
    "given": {"usd_per_gpu_hour": 10_000.0, "utilisation": 0.001},
    "owned": {"provider": "owned", "staff_usd_per_year": 1e9},
    "bought": {"purchase_usd": 1e9, "api": "venice/highspeed"},
    "no-api": {"model": "kimi-linear-48b"},
    "unbought": {"hardware": "8x-mi350x", "usd_per_gpu_hour": 4.0},
}
EVERY = pytest.mark.parametrize("said", CASES.values(), ids=CASES)


@EVERY
def test_no_line_is_wider_than_eighty_columns(said: dict[str, object]) -> None:
    lines = cost_text(asked(**said))  # type: ignore[arg-type]
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() for line in lines)


@EVERY
def test_a_document_is_json_without_infinities(said: dict[str, object]) -> None:
    document = cost_document(priced(**said))  # type: ignore[arg-type]
    json.dumps(plain(document), allow_nan=False)


def test_promised_names_have_low_and_high_beside_them() -> None:
    document = cost_document(priced())
    for name in ("usd_per_hour", "usd_per_m_input_tokens", "usd_per_m_output_tokens"):
        assert document[f"{name}_low"] <= document[name] <= document[f"{name}_high"]
    assert document["break_even_tokens_per_day"] > 0
    assert {"purchase", "api", "sensitivity"} <= set(document)
    assert len(document["sensitivity"]) == 10


def test_a_break_even_out_of_reach_is_null_with_its_verdict() -> None:
    document = cost_document(priced(usd_per_gpu_hour=1_000.0))
    assert document["break_even_tokens_per_day"] is None
    assert document["break_even"]["verdict"] == "api-cheaper-at-full-load"


def test_the_text_says_who_asks_the_price_and_when() -> None:
    text = "\n".join(cost_text(priced(provider="aws")))
    assert "at $17.80 a GPU-hour: aws, a hyperscaler, on-demand, 2026-07-20 (list price)" in text


def test_the_text_says_that_the_api_is_cheaper_at_any_load() -> None:
    text = "\n".join(cost_text(priced(usd_per_gpu_hour=1_000.0)))
    assert "the API is cheaper even at 100 % utilisation" in text


def test_the_community_s_figure_is_marked_as_quoted() -> None:
    text = " ".join(" ".join(cost_text(priced())).split())
    assert "a node at $550,000 to $650,000 (quoted, not used; assumed, 2026-11-29)" in text


def test_the_summary_is_the_beginning_of_the_whole() -> None:
    summary, whole = cost_summary(priced()), cost_text(priced())
    assert whole[: len(summary)] == summary
    assert len(summary) < 20


def test_hardware_without_a_price_is_one_sentence_with_the_way_out() -> None:
    found = asked("8x-h20-3e")
    assert isinstance(found, Unpriced)
    text = " ".join(cost_text(found))
    assert text.startswith("  no cost: neocloud has no price of a 8x-h20-3e on-demand; pass")
