"""Percentiles of a closed loop, worked by hand and held against requests one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.latencies import SHARES, excess, latency_s
from k31ctl.core.served import METRICS, STATISTICS, statistics
from k31ctl.core.service import Service
from k31ctl.core.slo import Limit, parse_slo


def service(*, first: float, all_s: float, decode: float, step: float, queue: float) -> Service:
    return Service(
        running=5,
        ttft_s=first + (all_s - first) / 2 + queue,
        tpot_s=0.0,
        e2e_s=all_s + decode + queue,
        decode_s=step,
        first_s=first,
        prefill_s=all_s,
        queue_s=queue,
        period_s=all_s + decode,
        requests_per_s=1.0,
    )


FIVE = service(first=1.0, all_s=3.0, decode=10.0, step=0.1, queue=0.5)


def test_the_last_prompt_waits_for_all_the_others() -> None:
    # 1 s for the first, 2 s more for the rest, half a second in the queue.
    limit = Limit(metric="ttft", statistic="max", at_most_s=9.0)
    assert latency_s(FIVE, limit, output_tokens=101) == pytest.approx(3.5)


def test_the_first_prompt_is_stalled_by_all_the_others() -> None:
    # (10 s of decoding + 2 s of others' prompts) over 100 tokens after the first.
    limit = Limit(metric="tpot", statistic="max", at_most_s=9.0)
    assert latency_s(FIVE, limit, output_tokens=101) == pytest.approx(0.12)


def test_one_token_has_no_time_per_token() -> None:
    limit = Limit(metric="tpot", statistic="p99", at_most_s=1e-9)
    assert latency_s(FIVE, limit, output_tokens=1) is None


def test_the_mean_of_ttft_is_the_service_s_own() -> None:
    limit = Limit(metric="ttft", statistic="mean", at_most_s=9.0)
    assert latency_s(FIVE, limit, output_tokens=101) == pytest.approx(FIVE.ttft_s)


@pytest.mark.parametrize("statistic", STATISTICS)
@given(n=st.integers(2, 200))
def test_percentiles_are_those_of_evenly_spaced_requests(statistic: str, n: int) -> None:
    starts = [1.0 + 2.0 * i / (n - 1) for i in range(n)]
    waits = statistics(starts)
    stalls = statistics((10.0 + 3.0 - start) / 100 for start in starts)
    assert waits is not None and stalls is not None
    quiet = service(first=1.0, all_s=3.0, decode=10.0, step=0.1, queue=0.0)
    for metric, expected in (("ttft", waits), ("tpot", stalls)):
        limit = Limit(metric=metric, statistic=statistic, at_most_s=1.0)
        value = latency_s(quiet, limit, output_tokens=101)
        assert value == pytest.approx(getattr(expected, f"{statistic}_s"))


def test_every_statistic_has_a_share() -> None:
    assert set(SHARES) == set(STATISTICS)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_a_value(metric: str) -> None:
    limit = Limit(metric=metric, statistic="p95", at_most_s=1.0)
    assert latency_s(FIVE, limit, output_tokens=101) is not None


def test_the_excess_is_that_of_the_worst_limit() -> None:
    # TTFT max is 3.5 of 7, TPOT max 0.12 of 0.08.
    slo = parse_slo("ttft_max_s<=7,tpot_max_s<=0.08")
    assert excess(FIVE, slo, output_tokens=101) == pytest.approx(1.5)
