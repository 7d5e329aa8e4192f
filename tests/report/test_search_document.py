"""A search as plain numbers."""

import csv
import io
import json
from typing import Any

import pytest

from k31ctl.core.fleet import parse_fleet
from k31ctl.core.searched import Searched, searched
from k31ctl.core.slo import parse_slo
from k31ctl.report.envelope import plain
from k31ctl.report.search_document import MOST_CANDIDATES, search_csv, search_result, search_rows
from tests.core.searches import load, space


@pytest.fixture(scope="module")
def found() -> Searched:
    return searched(
        space(
            "8x-b300", "8x-h200", loads=(load(), load(prompt=32_768)), engines=("vllm", "sglang")
        ),
        slo=parse_slo("ttft_p99_s<=20,tpot_p99_s<=0.1"),
        fleet_load=parse_fleet("users=5000,requests_per_hour=2"),
    )


@pytest.fixture(scope="module")
def document(found: Searched) -> Any:
    return json.loads(json.dumps(plain(search_result(found)), allow_nan=False))


def test_each_load_has_candidates_fronts_and_recommendations(document: Any) -> None:
    assert [each["prompt_tokens"] for each in document["loads"]] == [8192, 32_768]
    for each in document["loads"]:
        assert [made["goal"] for made in each["recommendations"]] == [
            "throughput",
            "latency",
            "cost",
            "context",
        ]
        assert 0 < len(each["candidates"]) <= MOST_CANDIDATES
        assert each["num_within_slo"] <= each["num_candidates"]


def test_fronts_are_places_among_the_candidates(document: Any) -> None:
    for each in document["loads"]:
        places = each["pareto"]["output_tok_s_per_gpu_against_tok_s_per_user"]
        rates = [each["candidates"][i]["output_tok_s_per_gpu"] for i in places]
        users = [each["candidates"][i]["tok_s_per_user"] for i in places]
        assert rates == sorted(rates, reverse=True)
        assert users == sorted(users)


def test_a_candidate_shows_the_latencies_that_are_limited(document: Any) -> None:
    for each in document["loads"]:
        for candidate in each["candidates"]:
            assert candidate["ttft_p99_s"] <= 20
            assert candidate["tpot_p99_s"] <= 0.1


def test_counts_are_of_the_whole_search(found: Searched, document: Any) -> None:
    assert document["num_evaluated"] == sum(len(a.load.candidates) for a in found.loads)
    assert document["num_deployments"] == found.result.num_options


def test_the_fleet_is_there_for_each_load(document: Any) -> None:
    for each in document["loads"]:
        assert each["fleet"]["replicas"] >= 1
        assert each["fleet"]["one_failed"]["replicas"] == each["fleet"]["replicas"] - 1


def test_csv_has_the_names_and_values_of_the_document(found: Searched) -> None:
    rows = list(csv.DictReader(io.StringIO(search_csv(found))))
    expected = search_rows(found)
    assert list(rows[0]) == list(expected[0])
    assert len(rows) == len(expected)
    assert float(rows[0]["output_tok_s"]) == expected[0]["output_tok_s"]
