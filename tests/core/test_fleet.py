"""Fleets: Little's law by hand, and laws of more users."""

from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.fleet import FleetLoad, fleet, parse_fleet
from k31ctl.core.goal import Goal
from k31ctl.core.goals import recommended
from k31ctl.core.search import Candidate
from k31ctl.core.slo import parse_slo
from k31ctl.errors import UsageError
from tests.core.searches import NO_LIMITS, found

SLO = "ttft_p99_s<=30,tpot_p99_s<=0.05"


def chosen() -> Candidate:
    best = recommended(found("8x-b300", slo=SLO).loads[0], Goal.THROUGHPUT)
    assert best is not None
    return best


def load(users: float = 20_000, headroom: float = 0.3, spare: int = 1) -> FleetLoad:
    return FleetLoad(
        users=users,
        active_fraction=0.1,
        requests_per_hour=6,
        headroom_fraction=headroom,
        spare=spare,
    )


def test_the_example_of_the_help_reads_as_it_should() -> None:
    found_load = parse_fleet("users=20000,active=0.1,requests_per_hour=6")
    assert found_load == load()
    # 20,000 x 0.1 x 6 / 3,600
    assert found_load.requests_per_s == pytest.approx(10 / 3)


def test_replicas_follow_from_little_s_law() -> None:
    made = fleet(chosen(), load(), slo=NO_LIMITS)
    service = chosen().service
    assert made.needed_concurrency == pytest.approx(10 / 3 * service.e2e_s, rel=1e-6)
    assert made.replicas == ceil(made.needed_concurrency * 1.3 / chosen().concurrency) + 1
    assert made.num_gpus == made.replicas * chosen().option.num_gpus
    assert made.usd_per_hour == pytest.approx(6.0 * made.num_gpus)


def test_headroom_is_planned_on_top_of_the_load() -> None:
    # A load of a hundred full replicas needs thirty more, and the spare one.
    users = 100 * chosen().requests_per_s * 3600 / (0.1 * 6)
    assert fleet(chosen(), load(users=users), slo=NO_LIMITS).replicas == 131


def test_the_usual_state_serves_the_whole_load() -> None:
    made = fleet(chosen(), load(), slo=parse_slo(SLO))
    assert made.usual.service is not None and made.usual.kept
    groups = chosen().option.layout.dp
    served = made.replicas * min(groups, made.usual.concurrency)
    assert served * made.usual.service.requests_per_s >= made.requests_per_s


def test_with_a_spare_one_may_fail_and_the_headroom_is_still_there() -> None:
    made = fleet(chosen(), load(), slo=parse_slo(SLO))
    assert made.one_failed.replicas == made.replicas - 1
    assert made.one_failed.utilisation <= 1 / 1.3 + 1e-9
    assert made.one_failed.kept


def test_a_lone_replica_that_fails_leaves_nothing() -> None:
    made = fleet(chosen(), load(users=10, spare=0), slo=NO_LIMITS)
    assert (made.replicas, made.one_failed.replicas, made.one_failed.kept) == (1, 0, False)


@settings(deadline=None, max_examples=30)
@given(users=st.floats(1, 1e6), more=st.floats(1, 10), spare=st.integers(0, 3))
def test_more_users_never_need_fewer_replicas(users: float, more: float, spare: int) -> None:
    few = fleet(chosen(), load(users=users, spare=spare), slo=NO_LIMITS)
    many = fleet(chosen(), load(users=users * more, spare=spare), slo=NO_LIMITS)
    assert few.replicas <= many.replicas


@settings(deadline=None, max_examples=30)
@given(headroom=st.floats(0, 5), more=st.floats(0, 5))
def test_more_headroom_never_runs_fuller(headroom: float, more: float) -> None:
    tight = fleet(chosen(), load(headroom=headroom), slo=NO_LIMITS)
    wide = fleet(chosen(), load(headroom=headroom + more), slo=NO_LIMITS)
    assert wide.usual.utilisation <= tight.usual.utilisation


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("users=20000", "requests_per_hour is missing"),
        ("requests_per_hour=6", "users is missing"),
        ("users=0,requests_per_hour=6", "users=0"),
        ("users=10,active=1.5,requests_per_hour=6", "active=1.5"),
        ("users=10,requests_per_hour=-6", "requests_per_hour=-6"),
        ("users=10,requests_per_hour=6,spare=0.5", "spare=0.5"),
        ("users=10,requests_per_hour=6,headroom=-1", "headroom=-1"),
        ("users=10,requests_per_hour=nan", "requests_per_hour=nan"),
        ("users=ten,requests_per_hour=6", "users='ten'"),
        ("users=10,users=20,requests_per_hour=6", "users is given twice"),
        ("people=10,requests_per_hour=6", "'people' is not a key"),
        ("users", "'users' is not key=number"),
        ("", "'' is not key=number"),
    ],
)
def test_a_bad_load_is_told_by_its_key(text: str, key: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_fleet(text)
    assert key in refused.value.what
    assert refused.value.where == "--fleet"


def test_more_replicas_than_anyone_has_are_refused() -> None:
    with pytest.raises(UsageError, match="replicas are more than"):
        fleet(chosen(), load(users=1e10), slo=NO_LIMITS)
