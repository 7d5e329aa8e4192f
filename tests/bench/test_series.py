"""Curves of a stage: what happened when, and that nothing is lost in the bins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.bench.series import Timeline

REQUESTS = st.lists(
    st.tuples(
        st.floats(0, 50), st.floats(0.01, 5), st.floats(0, 5), st.integers(1, 999), st.booleans()
    ),
    min_size=1,
    max_size=30,
)


def test_bins_are_as_worked_by_hand() -> None:
    timeline = Timeline()
    # Sent at 0, first token at 3, last at 9: 12 tokens over 6 s, 2 each second.
    timeline.add(
        sent_s=100.0, first_s=103.0, last_s=109.0, ended_s=109.0, tokens=12, ttft_s=3.0, is_ok=True
    )
    width_s, bins = timeline.bins(start_s=100.0, end_s=112.0)
    assert width_s == pytest.approx(0.1)
    assert len(bins) == 120
    assert [round(each.output_tokens, 6) for each in bins[29:32]] == [0, 0.2, 0.2]
    assert bins[50].in_flight == pytest.approx(1)
    assert bins[100].in_flight == pytest.approx(0, abs=1e-9)
    assert [n for n, each in enumerate(bins) if each.ttft_p50_s == 3.0] == [30]


@given(REQUESTS)
def test_every_request_and_every_token_is_in_a_bin(
    requests: list[tuple[float, float, float, int, bool]],
) -> None:
    timeline = Timeline()
    for sent_s, wait_s, length_s, tokens, is_ok in requests:
        timeline.add(
            sent_s=sent_s,
            first_s=sent_s + wait_s,
            last_s=sent_s + wait_s + length_s,
            ended_s=sent_s + wait_s + length_s,
            tokens=tokens,
            ttft_s=wait_s,
            is_ok=is_ok,
        )
    end_s = max(sent_s + wait_s + length_s for sent_s, wait_s, length_s, *_ in requests)
    width_s, bins = timeline.bins(start_s=0.0, end_s=end_s)
    answered = [request for request in requests if request[4]]
    assert sum(each.sent for each in bins) == len(requests)
    assert sum(each.completed for each in bins) == len(answered)
    assert sum(each.failed for each in bins) == len(requests) - len(answered)
    tokens_in = sum(each.output_tokens for each in bins)
    assert tokens_in == pytest.approx(sum(request[3] for request in answered), rel=1e-6)
    busy_s = sum(wait_s + length_s for _, wait_s, length_s, *_ in requests)
    assert sum(each.in_flight for each in bins) * width_s == pytest.approx(busy_s, rel=1e-6)
