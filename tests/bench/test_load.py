"""Loads: users in a closed loop, arrivals at set times, traces; and how they are reached."""

import json
import os
import signal
import ssl
import threading
import time
from collections.abc import Iterator
from itertools import count, pairwise
from pathlib import Path

import psutil
import pytest

from k31ctl.api.measuring import conformance
from k31ctl.bench.events import StageFinished, StageStarted
from k31ctl.errors import EndpointError, InputError
from tests.bench.runs import events, finished, lines, measured
from tests.bench.sse_server import (
    HEAD,
    Asked,
    Step,
    answer,
    chunk,
    delta,
    event,
    running_server,
)


def slow(asked: Asked) -> Iterator[Step]:
    yield 0.1
    yield from answer(asked)


def test_users_of_a_closed_loop_are_so_many_at_a_time() -> None:
    under_way, most, lock = [0], [0], threading.Lock()

    def counting(asked: Asked) -> Iterator[Step]:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        yield 0.02
        with lock:
            under_way[0] -= 1
        yield from answer(asked)

    with running_server(counting) as server:
        found = measured(server.url, concurrency=(5,), num_requests=30)
    assert most[0] == found.most_in_flight == 5
    assert found.num_connections == 5
    assert found.requests == 30


def test_a_duration_ends_the_sending_and_waits_for_what_is_under_way() -> None:
    with running_server(slow) as server:
        found = measured(server.url, concurrency=(2,), num_requests=None, duration_s=0.35)
    assert found.completed == found.requests == len(server.completions())
    assert found.duration_s >= 0.35


def test_a_load_that_is_stopped_before_any_answer_still_took_its_time() -> None:
    def stopping(_: Asked) -> Iterator[Step]:
        os.kill(os.getpid(), signal.SIGINT)
        yield 2.0

    with running_server(stopping) as server:
        found = measured(server.url, num_requests=None, duration_s=30.0)
    assert (found.completed, found.is_whole) == (0, False)
    assert found.duration_s > 1e-5
    assert found.client.cpu_fraction < 100


def test_the_rates_of_a_load_that_is_stopped_count_the_time_of_what_was_cut_off() -> None:
    calls = count()

    def stalling(asked: Asked) -> Iterator[Step]:
        if next(calls):
            yield 0.5
            os.kill(os.getpid(), signal.SIGINT)
            yield 2.0
        yield from answer(asked)

    with running_server(stalling) as server:
        found = measured(server.url, num_requests=None, duration_s=30.0)
    assert found.completed == 1
    assert found.duration_s >= 0.5
    assert found.request_rate <= 2.0


def test_rates_of_a_closed_loop_are_those_of_its_full_load() -> None:
    def tenth(asked: Asked) -> Iterator[Step]:
        yield HEAD
        for step in list(answer(asked))[1:]:
            yield 0.03
            yield step

    with running_server(tenth) as server:
        found = measured(server.url, concurrency=(2,), num_requests=None, duration_s=1.5)
        short = measured(server.url, concurrency=(2,), num_requests=2)
    assert (found.rates_over, short.rates_over) == ("full load", "whole run")
    assert 1.4 < found.rates_over_s <= found.duration_s
    assert found.output_tok_s == pytest.approx(4 * found.request_rate)
    whole = found.completed / found.duration_s
    assert whole * 0.95 <= found.request_rate <= whole * 1.25
    assert short.request_rate == pytest.approx(2 / short.duration_s)


def test_arrivals_do_not_wait_for_answers() -> None:
    with running_server(slow) as server:
        found = measured(server.url, concurrency=(), rates=(100.0,), num_requests=40)
    assert found.completed == 40
    assert found.most_in_flight > 5


def test_even_arrivals_come_at_even_times(tmp_path: Path) -> None:
    with running_server(answer) as server:
        measured(
            server.url,
            concurrency=(),
            rates=(50.0,),
            burstiness=None,
            num_requests=10,
            folder=tmp_path / "run",
        )
    rows = [json.loads(line) for line in lines(tmp_path / "run" / "requests.jsonl")]
    due = sorted(row["due_s"] for row in rows)
    assert due == pytest.approx([n / 50 for n in range(10)], abs=1e-9)
    assert all(row["sent_s"] >= row["due_s"] for row in rows)


def test_latencies_count_from_when_a_request_was_due() -> None:
    with running_server(slow) as server:
        found = measured(
            server.url, concurrency=(), rates=(1000.0,), num_requests=10, most_in_flight=1
        )
    assert found.arrival_lag_s and found.ttft_s
    assert found.arrival_lag_s.max > 0.7  # nine others of 0.1 s were first
    assert found.ttft_s.max > found.arrival_lag_s.max


def test_the_same_seed_gives_the_same_arrivals_and_prompts() -> None:
    bodies = []
    for _ in range(2):
        with running_server(answer) as server:
            measured(server.url, concurrency=(), rates=(200.0,), num_requests=8)
        bodies.append(sorted(asked.body for asked in server.completions()))
    assert bodies[0] == bodies[1]


def test_a_trace_is_replayed_with_its_lengths_and_its_times(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"timestamp": 0, "input_length": 20, "output_length": 3, "hash_ids": [1]}\n'
        '{"timestamp": 400, "input_length": 30, "output_length": 5, "hash_ids": [1]}\n'
    )
    with running_server(answer) as server:
        found = measured(server.url, concurrency=(), trace=trace, speed=2.0, num_requests=None)
    asked = [request.json for request in server.completions()]
    assert [body["max_tokens"] for body in asked] == [3, 5]
    assert [len(body["messages"][0]["content"].split()) for body in asked] == [20, 30]
    assert found.duration_s >= 0.2


def test_prompts_of_a_trace_share_the_blocks_that_it_says(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [(1200, [7, 8, 9]), (1300, [7, 8, 10]), (600, [3_000_000, 8]), (1500, [7])]
    trace.write_text(
        "\n".join(
            json.dumps({"timestamp": 0, "input_length": n, "output_length": 1, "hash_ids": ids})
            for n, ids in rows
        )
    )
    with running_server(answer) as server:
        measured(server.url, concurrency=(), trace=trace, num_requests=None)
    texts = {
        len(words): words
        for asked in server.completions()
        for words in (asked.json["messages"][0]["content"].split(),)
    }
    assert sorted(texts) == [600, 1200, 1300, 1500]
    # Two blocks of 512 tokens, a word each; then the third differs from its first words on.
    assert texts[1200][:1024] == texts[1300][:1024]
    assert texts[1200][1024:1028] != texts[1300][1024:1028]
    assert texts[600][:4] != texts[1200][:4]
    assert texts[1500][:512] == texts[1200][:512]
    assert texts[1500][512:] != texts[1200][512:]


def test_rows_of_a_data_set_are_sent_in_turn(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"prompt": "one", "output_tokens": 2}\n'
        '{"messages": [{"role": "system", "content": "be"}, {"role": "user", "content": "two"}]}\n'
    )
    with running_server(answer) as server:
        found = measured(server.url, dataset=path, num_requests=3)
    asked = [request.json for request in server.completions()]
    assert [body["messages"][-1]["content"] for body in asked] == ["one", "two", "one"]
    assert [body["max_tokens"] for body in asked] == [2, 4, 2]
    assert "ignore_eos" not in asked[0]
    assert found.completed == 3


def test_stages_run_one_after_another_and_repeats_after_all() -> None:
    with running_server(answer) as server:
        told = events(server.url, concurrency=(1, 2), repeat=2, num_requests=2)
    started = [event.name for event in told if isinstance(event, StageStarted)]
    ended = [event.result for event in told if isinstance(event, StageFinished)]
    assert started == ["concurrency 1", "concurrency 2"] * 2
    assert [result.repeat for result in ended] == [0, 0, 1, 1]


def test_a_service_that_slows_down_is_not_steady() -> None:
    begun: list[float] = []

    def slowing(asked: Asked) -> Iterator[Step]:
        begun.append(time.monotonic())
        yield 0.02 / max(0.05, 1 - (begun[-1] - begun[0]) / 5)  # each second a fifth slower
        yield from answer(asked)

    with running_server(slowing) as server:
        found = measured(server.url, num_requests=None, duration_s=4.0, output_tokens=1)
        short = measured(server.url, num_requests=3, output_tokens=1)
    assert found.steady is not None
    assert not found.steady.is_steady
    assert short.steady is None


def test_saturation_is_found_where_more_users_give_no_more() -> None:
    seats = threading.Semaphore(2)

    def two_at_a_time(asked: Asked) -> Iterator[Step]:
        with seats:
            time.sleep(0.2)
        yield from answer(asked)

    with running_server(two_at_a_time) as server:
        end = finished(server.url, seeks_saturation=True, num_requests=8, output_tokens=1)
    stages = [(stage.concurrency, stage.requests) for stage in end.stages]
    assert stages[:3] == [(1, 8), (2, 16), (4, 32)]
    assert len(stages) <= 4  # a busy machine may seem to give more once
    assert end.notes[-1].startswith(f"saturation: concurrency {stages[-1][0]} gave ")


def test_saturation_ends_where_the_service_level_is_broken() -> None:
    def late(asked: Asked) -> Iterator[Step]:
        time.sleep(0.5)  # so long that what this machine adds is nothing beside it
        yield from answer(asked)

    with running_server(late) as server:
        end = finished(
            server.url,
            seeks_saturation=True,
            num_requests=2,
            output_tokens=1,
            slo="ttft_p99_s<=0.01",
        )
    assert len(end.stages) == 1
    assert "kept --slo" in end.notes[-1]


def test_saturation_is_found_with_a_rate_that_doubles() -> None:
    seat = threading.Lock()

    def one_at_a_time(asked: Asked) -> Iterator[Step]:
        with seat:
            time.sleep(0.1)  # 10 a second, and no more
        yield from answer(asked)

    with running_server(one_at_a_time) as server:
        end = finished(
            server.url,
            concurrency=(),
            rates=(4.0,),
            burstiness=None,
            seeks_saturation=True,
            num_requests=8,
            output_tokens=1,
        )
    assert [stage.rate for stage in end.stages][:3] == [4, 8, 16]
    assert len(end.stages) <= 4
    assert end.notes[-1].startswith("saturation: ")


def test_a_ramp_sends_more_and_more(tmp_path: Path) -> None:
    with running_server(answer) as server:
        found = measured(
            server.url,
            concurrency=(),
            ramp=(10.0, 50.0),
            burstiness=None,
            duration_s=1.0,
            num_requests=None,
            folder=tmp_path / "run",
        )
    rows = [json.loads(line) for line in lines(tmp_path / "run" / "requests.jsonl")]
    due = sorted(row["due_s"] for row in rows)
    assert (found.name, len(due)) == ("ramp 10 to 50 requests/s", 30)
    assert due[1] - due[0] > 3 * (due[-1] - due[-2])


def test_no_stage_begins_after_the_time_budget() -> None:
    with running_server(slow) as server:
        end = finished(server.url, concurrency=(1, 2, 4), num_requests=4, budget_s=0.1)
    assert [stage.name for stage in end.stages] == ["concurrency 1"]
    assert "used up before: concurrency 2, concurrency 4" in end.notes[-1]


def test_requests_ahead_are_not_counted() -> None:
    with running_server(answer) as server:
        found = measured(server.url, num_warmup=3, num_requests=2)
    assert (found.requests, len(server.completions())) == (2, 5)


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    def some_slow(asked: Asked) -> Iterator[Step]:
        if asked.number % 4 == 0:
            yield 0.3
        yield from answer(asked)

    with running_server(some_slow) as server:
        found = measured(server.url, num_requests=8, slo="ttft_p99_s<=0.25")
    assert found.good_fraction == 0.75
    assert found.goodput == pytest.approx(0.75 * found.request_rate)


def test_plain_completions_are_read_as_well() -> None:
    def plain_text(asked: Asked) -> Iterator[Step]:
        assert asked.path == "/v1/completions"
        yield HEAD
        for _ in range(4):
            choice = {"index": 0, "text": " tok", "finish_reason": None}
            yield chunk(event({"choices": [choice]}))
        end = {"index": 0, "text": "", "finish_reason": "length"}
        yield chunk(event({"choices": [end]})) + b"0\r\n\r\n"

    with running_server(plain_text) as server:
        found = measured(server.url, is_chat=False)
    assert (found.completed, found.tokens.events) == (1, 4)
    assert isinstance(server.completions()[0].json["prompt"], str)


def test_a_million_tokens_leave_memory_as_it_was() -> None:
    burst = chunk(event(delta(content=" tok"))) * 1000
    held: list[int] = []

    def flood(asked: Asked) -> Iterator[Step]:
        held.append(psutil.Process().memory_info().rss)
        yield HEAD
        for _ in range(50):
            yield burst
        yield chunk(event(delta(finish="stop"))) + b"0\r\n\r\n"

    with running_server(flood) as server:
        found = measured(server.url, num_requests=20, output_tokens=50_000)
    assert found.tokens.events == 1_000_000
    assert held[-1] - held[4] < 6_000_000  # eight bytes kept of each would be more


def test_tls_is_spoken_and_the_server_proven(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with running_server(answer, context=context) as server:
        end = finished(
            server.url,
            environment={"SSL_CERT_FILE": f"{certificate}.crt"},
            num_requests=6,
            concurrency=(2,),
        )
        with pytest.raises(EndpointError, match="certificate is not trusted"):
            finished(server.url, environment={})
    assert end.stages[0].completed == 6


def test_a_proxy_of_the_environment_is_gone_through(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(answer) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("//", "//user:pass@"))
        monkeypatch.setenv("no_proxy", "")
        found = measured("http://model.invalid:8000", num_requests=2)
    asked = proxy.completions()
    assert found.completed == 2
    assert asked[0].path == "http://model.invalid:8000/v1/chat/completions"
    assert asked[0].headers["host"] == "model.invalid:8000"
    assert asked[0].headers["proxy-authorization"] == "Basic dXNlcjpwYXNz"


@pytest.mark.parametrize("environment", [{}, {"MY_KEY": ""}])
def test_a_key_that_somebody_named_is_not_left_out(environment: dict[str, str]) -> None:
    with pytest.raises(InputError, match="empty or not set") as caught:
        events("http://127.0.0.1:9", environment, key_variable="MY_KEY")
    assert caught.value.where == "--api-key-env MY_KEY"


def test_a_key_that_conformance_is_to_send_is_not_left_out() -> None:
    with pytest.raises(InputError, match="empty or not set"):
        conformance("http://127.0.0.1:9", api_key_env="MY_KEY")


def test_the_clock_of_the_client_agrees_with_the_server() -> None:
    sent: list[float] = []

    def timed(asked: Asked) -> Iterator[Step]:
        for step in answer(asked):
            sent.append(time.perf_counter())
            yield step
            yield 0.05

    with running_server(timed) as server:
        found = measured(server.url)
    assert found.itl_s
    gaps = [b - a for a, b in pairwise(sent[1:5])]
    assert found.itl_s.mean == pytest.approx(sum(gaps) / len(gaps), abs=0.02)
