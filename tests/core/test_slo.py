import pytest

from k31ctl.core.slo import NAMES, goodput, parse_slo
from k31ctl.errors import UsageError
from tests.core.services import Line, at, batching, run, size

# Served one after the other, a second a step: TTFT 1, 3, 5 s; TPOT 1 s; end after 2, 4, 6 s.
RUN = run(at(*((0.0, size(1, 2)) for _ in range(3))), Line(step=1.0), batching(max_running=1))


def held(text: str) -> tuple[bool, float]:
    found = goodput(parse_slo(text), RUN.records, RUN.summary)
    return found.met, found.good_fraction


@pytest.mark.parametrize(
    ("text", "met", "good"),
    [
        ("ttft_max_s<=5", True, 1.0),
        ("ttft_max_s<=4.9", False, 2 / 3),
        ("ttft_p50_s<=3", True, 2 / 3),
        ("ttft_mean_s < 2.9", False, 1 / 3),
        ("ttft_p99_s<=5,tpot_p99_s<=0.9", False, 0.0),
        ("ttft_p50_s<=3, ttft_max_s<=5", True, 1.0),  # a request may take the looser of the two
        ("itl_max_s<=1,e2e_p90_s<=5.6", True, 2 / 3),  # p90 is at rank 1.8: 4 + 0.8 x 2
    ],
)
def test_a_run_meets_its_levels_and_some_of_its_requests_do(
    text: str, met: bool, good: float
) -> None:
    assert held(text)[0] is met
    assert held(text)[1] == pytest.approx(good)


def test_goodput_counts_the_good_requests_and_their_tokens_by_time() -> None:
    found = goodput(parse_slo("ttft_max_s<=3"), RUN.records, RUN.summary)
    assert (found.good_requests_per_s, found.good_output_tok_s) == (2 / 6, 4 / 6)
    assert [(k.limit.name, k.actual_s, k.kept) for k in found.limits] == [("ttft_max_s", 5, False)]


def test_what_no_request_has_breaks_no_limit() -> None:
    single = run(at((0.0, size(1, 1))), Line(step=1.0))
    found = goodput(parse_slo("tpot_p99_s<=0.1"), single.records, single.summary)
    assert (found.met, found.good_fraction, found.limits[0].actual_s) == (True, 1.0, None)


@pytest.mark.parametrize("name", NAMES)
def test_every_latency_and_statistic_can_be_limited(name: str) -> None:
    (limit,) = parse_slo(f"{name}<=1e-1").limits
    assert (limit.name, limit.at_most_s) == (name, 0.1)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is not a limit"),
        ("ttft_p99_s", "is not a limit"),
        ("ttft_p99_s>=5", "is not a limit"),
        ("ttft_p99_s<=5,", "is not a limit"),
        ("ttft_p98_s<=5", "'ttft_p98_s' is not a latency"),
        ("ttft_p99_ms<=5", "'ttft_p99_ms' is not a latency"),
        ("ttft_p99_s<=five", "'five' is not a number of seconds"),
        ("ttft_p99_s<=nan", "cannot be limited to 'nan'"),
        ("ttft_p99_s<=-1", "cannot be limited to '-1'"),
        ("ttft_p99_s<=0", "cannot be limited to '0'"),
        ("ttft_p99_s<=1e999", "cannot be limited to '1e999'"),
        ("ttft_p99_s<=1,ttft_p99_s<=2", "more than one limit"),
        ("x" * 10_000, "..."),
    ],
)
def test_what_is_no_service_level_is_refused_with_the_names(text: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_slo(text)
    assert what in caught.value.what
    assert "ttft|tpot|itl|e2e_mean|p50|p90|p95|p99|max_s" in caught.value.remedy
