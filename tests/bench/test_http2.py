"""Measuring a server that speaks HTTP/2 alone: what it says counts as under HTTP/1.1."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k31ctl.bench.trouble import Trouble
from k31ctl.errors import EndpointError
from tests.bench.h2_server import GOODBYE, PING, RESET, Step, h2_server
from tests.bench.runs import events, measured
from tests.bench.sse_server import DONE, answer, delta, event, running_server, usage

TOKENS = 4


def stream(asked: Any, _: int) -> Iterator[Step]:
    """As many tokens as were asked for, the first after 50 ms, then one each 20 ms."""
    yield 0.05
    yield event(delta(role="assistant", content="tok"))
    for _ in range(asked["max_tokens"] - 1):
        yield 0.02
        yield event(delta(content=" tok"))
    yield event(delta(finish="length")) + event(usage(7, asked["max_tokens"])) + DONE


def test_tokens_times_and_headers_are_those_of_the_server() -> None:
    with h2_server(stream) as server:
        found = measured(
            server.url,
            is_http2=True,
            num_requests=16,
            concurrency=(2,),
            output_tokens=8,
            environment={"K31CTL_API_KEY": "a-key"},
        )
    assert (found.completed, found.errors, found.tokens.output) == (16, 0, 128)
    assert found.ttft_s is not None
    assert found.itl_s is not None
    assert found.ttft_s.mean > 0.05
    assert 0.02 < found.itl_s.p50 < 0.2
    assert {each["authorization"] for each in server.headers} == {"Bearer a-key"}
    # A connection for each user, and one for each question before the load.
    assert server.num_connections < 10


def test_a_prompt_larger_than_the_servers_window_goes_out_as_it_makes_room() -> None:
    with h2_server(stream) as server:
        found = measured(server.url, is_http2=True, prompt_tokens=20_000)
    assert found.completed == 1
    assert len(server.bodies[0]["messages"][0]["content"].split()) == 20_000


def test_events_cut_anywhere_and_pings_between_them_change_nothing() -> None:
    def pieces(asked: Any, number: int) -> Iterator[Step]:
        whole = b"".join(step for step in stream(asked, number) if isinstance(step, bytes))
        for at in range(0, len(whole), 7):
            yield whole[at : at + 7]
            if at % 70 == 0:
                yield PING

    with h2_server(pieces) as server:
        found = measured(server.url, is_http2=True, num_requests=3)
    assert (found.completed, found.tokens.output) == (3, 3 * TOKENS)


def test_a_stream_that_is_reset_is_a_failed_request() -> None:
    def reset(asked: Any, number: int) -> Iterator[Step]:
        yield event(delta(content="tok"))
        yield RESET if number == 0 else DONE

    with h2_server(reset) as server:
        found = measured(server.url, is_http2=True, num_requests=2)
    assert (found.errors, found.errors_by_kind) == (1, {Trouble.RESET: 1})


def test_a_server_that_says_goodbye_is_asked_on_another_connection() -> None:
    def goodbye(asked: Any, number: int) -> Iterator[Step]:
        yield GOODBYE
        yield from stream(asked, number)

    with h2_server(goodbye) as server:
        found = measured(server.url, is_http2=True, num_requests=3)
    assert (found.completed, found.errors) == (3, 0)
    assert server.num_connections >= 3


def test_a_server_of_http_1_alone_is_told_apart() -> None:
    with running_server(answer) as server, pytest.raises(EndpointError, match="not HTTP/2"):
        events(server.url, is_http2=True)


@pytest.mark.parametrize("agrees", [True, False])
def test_under_tls_it_is_agreed_on(agrees: bool, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.set_alpn_protocols(["h2"] if agrees else ["http/1.1"])
    known = {"SSL_CERT_FILE": f"{certificate}.crt"}
    with h2_server(stream, tls=context) as server:
        if agrees:
            assert measured(server.url, is_http2=True, environment=known).completed == 1
        else:
            with pytest.raises(EndpointError, match="does not agree to HTTP/2"):
                events(server.url, is_http2=True, environment=known)
