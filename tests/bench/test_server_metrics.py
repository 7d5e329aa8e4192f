"""What a server counts of itself while it is measured."""

from itertools import count

import pytest

from k31ctl.bench.prometheus import parse_metrics
from k31ctl.bench.server_metrics import between
from tests.bench.runs import measured
from tests.bench.sse_server import Asked, answer, plain, running_server

VLLM = """# HELP vllm:time_to_first_token_seconds Histogram.
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{le="0.1",model_name="a b"}} 7.0
vllm:time_to_first_token_seconds_sum{{engine="0"}} {ttft}
vllm:time_to_first_token_seconds_sum{{engine="1"}} 1.5
vllm:time_to_first_token_seconds_count{{engine="0"}} {requests}
vllm:prefix_cache_hits_total{{engine="0"}} {hits}
vllm:prefix_cache_queries_total{{engine="0"}} {queries}
vllm:num_preemptions_total 3
vllm:spec_decode_num_accepted_tokens_total {accepted}
vllm:spec_decode_num_drafts_total {drafts}
"""


def vllm(n: int) -> str:
    return VLLM.format(
        ttft=n * 2.0, requests=n * 4, hits=n * 30, queries=n * 40, accepted=n * 10, drafts=n * 4
    )


def test_means_and_shares_are_those_of_the_time_between_two_readings() -> None:
    found = between(parse_metrics(vllm(5)), parse_metrics(vllm(8)))
    assert found is not None
    assert found.engine == "vllm"
    assert found.ttft_mean_s == pytest.approx(0.5)  # 3 x 2.0 s over 3 x 4 requests
    assert found.prefix_hit_fraction == pytest.approx(0.75)
    assert found.accepted_per_draft == pytest.approx(2.5)
    assert found.preemptions == 0
    assert (found.itl_mean_s, found.queue_mean_s) == (None, None)


def test_a_server_that_began_anew_gives_no_wrong_numbers() -> None:
    found = between(parse_metrics(vllm(8)), parse_metrics(vllm(2)))
    assert found is not None
    assert (found.ttft_mean_s, found.prefix_hit_fraction) == (None, None)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "python_info 1\n", "vllm x\n", "a{b 1\n", "\x00\xff"]
)
def test_what_is_no_metric_of_an_engine_is_nothing(text: str) -> None:
    assert between({}, parse_metrics(text)) is None


def test_a_stage_has_what_the_server_counted_meanwhile() -> None:
    reading = count(1)

    def metrics(_: Asked) -> bytes:
        return plain(200, vllm(next(reading)).encode())

    with running_server(answer, routes={"/metrics": metrics}) as server:
        found = measured(server.url)
    assert found.server_metrics is not None
    assert found.server_metrics.ttft_mean_s == pytest.approx(0.5)


def test_a_server_without_metrics_is_asked_for_them_once() -> None:
    with running_server(answer) as server:
        found = measured(server.url)
    assert found.server_metrics is None
    assert [asked.path for asked in server.asked].count("/metrics") == 1
