"""A search as text: the answer first, 80 columns, the same bytes every time."""

import pytest

from k31ctl.core.fleet import parse_fleet
from k31ctl.core.goal import Goal
from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.searched import Searched, searched
from k31ctl.core.slo import parse_slo
from k31ctl.report.search_text import search_text
from tests.core.searches import load, space

SLO = parse_slo("ttft_p99_s<=5,tpot_p99_s<=0.05")


def answer(goal: Goal = Goal.THROUGHPUT) -> Searched:
    return searched(
        space(
            "8x-b300",
            "8x-h200",
            "gb300-nvl72",
            engines=("vllm", "sglang"),
            kv=(KvFormat.BF16, KvFormat.FP8),
            counts=(1,),
        ),
        goal=goal,
        slo=SLO,
        fleet_load=parse_fleet("users=20000,active=0.1,requests_per_hour=6"),
    )


@pytest.fixture(scope="module")
def text() -> str:
    return search_text(answer())


def test_no_line_is_wider_than_a_terminal(text: str) -> None:
    assert max(len(line) for line in text.splitlines()) <= 80


def test_it_is_plain_characters(text: str) -> None:
    assert text.isascii()


def test_the_goal_comes_first() -> None:
    lines = [line for line in search_text(answer(Goal.LATENCY)).splitlines() if "): " in line]
    assert lines[0].startswith("latency (L): ")


def test_every_goal_has_its_mark_in_the_chart(text: str) -> None:
    chart = "\n".join(line for line in text.splitlines() if " |" in line)
    assert all(mark in chart for mark in "TLX")


def test_what_was_left_out_is_counted_by_rule(text: str) -> None:
    assert "layout-heads" in " ".join(text.split())


def test_the_fleet_says_what_happens_when_one_fails(text: str) -> None:
    assert "with one failed" in text
    assert "20,000 users, 10 % of them active" in " ".join(text.split())


def test_the_same_search_is_the_same_text(text: str) -> None:
    assert search_text(answer()) == text


def test_a_load_that_nothing_holds_says_so() -> None:
    loads = (load(), load(prompt=1_000_000))
    found = searched(space("8x-b300", loads=loads, concurrencies=(64,), counts=(1,)))
    assert "nothing to recommend: no deployment holds requests of this length" in search_text(found)
