"""The way between here and a hub: proxies, certificates, several endpoints, outages, limits."""

import http.server
import json
import random
import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from k31ctl.errors import EndpointError
from k31ctl.fetch.events import Paused, Progress, Retried
from k31ctl.fetch.patience import Patience
from k31ctl.fetch.throttle import Throttle, parse_hours
from k31ctl.fetch.trouble import StoppedError, unreachable
from tests.fetch.conftest import Fetch, command, environment, is_whole
from tests.fetch.direct import Download
from tests.fetch.hub_server import Answer, Fault, HubServer, running_hub, status_once

BIG = "big.safetensors"


class _Proxy(http.server.BaseHTTPRequestHandler):
    """Passes plain requests on and tunnels the others; asks for a login where one is set."""

    asked: list[str]
    login: str | None

    def log_message(self, *_: object) -> None:
        return

    def do_CONNECT(self) -> None:
        if self._may_pass():
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port))) as far:
                self.send_response(200)
                self.end_headers()
                self._pass(far)
        self.close_connection = True

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if self._may_pass() and parts.hostname:
            with socket.create_connection((parts.hostname, parts.port or 80)) as far:
                lines = [f"GET {parts.path}?{parts.query} HTTP/1.1", "Connection: close"]
                lines += [
                    f"{name}: {value}"
                    for name, value in self.headers.items()
                    if not name.lower().startswith(("proxy-", "connection"))
                ]
                far.sendall("\r\n".join([*lines, "", ""]).encode())
                self._pass(far)
        self.close_connection = True

    def _may_pass(self) -> bool:
        self.asked.append(f"{self.command} {self.path}")
        if self.login is None or self.headers.get("Proxy-Authorization") == self.login:
            return True
        self.send_response(407)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return False

    def _pass(self, far: socket.socket) -> None:
        ends = {self.connection: far, far: self.connection}
        with suppress(OSError):
            while True:
                for end in select.select([*ends], [], [], 30)[0]:
                    data = end.recv(65536)
                    if not data:
                        return
                    ends[end].sendall(data)


@contextmanager
def running_proxy(login: str | None = None) -> Iterator[tuple[str, list[str]]]:
    """Yield a proxy's address and what it was asked for."""
    asked: list[str] = []
    handler = type("Proxy", (_Proxy,), {"asked": asked, "login": login})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
def test_everything_goes_through_a_proxy_with_its_login(
    hub: HubServer, fetch: Fetch, tmp_path: Path, variable: str
) -> None:
    with running_proxy("Basic am86c2VjcmV0") as (address, asked):  # jo:secret
        done = fetch("--debug", **{variable: f"http://jo:secret@{address}"})
    assert (done.returncode, len(asked) >= 6) == (0, True), done.stderr
    assert len(asked) == len(hub.asked)
    assert is_whole(hub, tmp_path / "w")
    assert not [r for r in hub.asked if "Proxy-Authorization" in r.headers]
    kept = b"".join(p.read_bytes() for p in (tmp_path / "w" / ".k31ctl").iterdir())
    assert "secret@" not in done.stdout + done.stderr
    assert b"secret@" not in kept


def test_a_proxy_that_wants_a_login_is_told_as_that(hub: HubServer, fetch: Fetch) -> None:
    with running_proxy("Basic am86c2VjcmV0") as (address, _):
        done = fetch("--retries", "0", http_proxy=f"http://jo:wrong@{address}")
        hub.url = "https://localhost:9"
        tunnel = fetch("--retries", "0", https_proxy=f"http://jo:wrong@{address}")
    assert (done.returncode, tunnel.returncode) == (6, 6)
    assert "407" in done.stderr
    assert "407" in tunnel.stderr
    assert "wrong" not in done.stderr + tunnel.stderr


def test_what_no_proxy_names_is_asked_directly(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    with running_proxy() as (address, asked):
        done = fetch(http_proxy=f"http://{address}", no_proxy="127.0.0.1,localhost")
    assert (done.returncode, asked) == (0, [])
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
def test_a_proxy_of_a_kind_that_is_not_spoken_is_named(
    hub: HubServer, fetch: Fetch, variable: str
) -> None:
    done = fetch(**{variable: "socks5://127.0.0.1:9"})
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 3)
    assert "a proxy of kind socks5 is not supported" in done.stderr
    assert hub.asked == []


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate for this machine that nobody else trusts, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate and is not here")
    path = tmp_path / "own.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-keyout", str(path), "-out", str(tmp_path / "public.pem"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + (tmp_path / "public.pem").read_text())
    return path


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_an_authority_of_ones_own_is_trusted_where_it_is_named_and_not_otherwise(
    hub: HubServer, fetch: Fetch, tmp_path: Path, certificate: Path, variable: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with running_hub(HubServer(files=hub.files, redirect_host=None), context=context) as secure:
        hub.url = secure.url
        refused = fetch()  # at once: to ask again would not help
        assert refused.returncode == 6
        assert "its certificate is not trusted" in refused.stderr
        assert "let SSL_CERT_FILE name a file" in refused.stderr
        assert (secure.asked, "again" in refused.stderr) == ([], False)
        with running_proxy() as (address, asked):
            done = fetch(**{variable: str(certificate), "https_proxy": f"http://{address}"})
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in asked} == {"CONNECT"}
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize("content", [None, "", "not PEM"], ids=["missing", "empty", "other"])
def test_certificates_that_cannot_be_read_are_told_as_that(
    hub: HubServer, fetch: Fetch, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "own.pem").write_text(content)
    hub.url = "https://localhost:9"
    done = fetch("--retries", "0", SSL_CERT_FILE=str(tmp_path / "own.pem"))
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 3)
    assert "the certificates cannot be read" in done.stderr


@pytest.mark.parametrize(
    "endpoint",
    [
        "hub.example", "ftp://hub.example", "https://jo:secret@hub.example", "https://[::1",
        "http://exa mple", "http://h:8199#secret", "http://h:8199?secret", "http://h\n", "http://",
        "http://a..b", f"http://{'a' * 70}.example", "http://h:99999", "http://h/\u00e9", " http://h",
    ],
)  # fmt: skip
def test_an_endpoint_that_is_none_or_holds_a_password_is_refused(
    fetch: Fetch, endpoint: str
) -> None:
    done = fetch("--endpoint", endpoint)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 3)
    assert "secret" not in done.stderr


@pytest.mark.parametrize("proxy", ["http://127.0.0.1:99999", "http://", "http://a..b:3128"])
def test_a_proxy_whose_address_is_none_is_one_clear_failure(fetch: Fetch, proxy: str) -> None:
    done = fetch("--retries", "0", http_proxy=proxy)
    assert (done.returncode in (3, 6), len(done.stderr.splitlines())) == (True, 3), done.stderr


def only(path: str, fault: Fault) -> Fault:
    return lambda answer: fault(answer) if answer.path == path else None


def test_each_file_comes_from_the_first_endpoint_that_has_it(
    hub: HubServer, tmp_path: Path
) -> None:
    first = "model-00001-of-00002.safetensors"
    with running_hub(HubServer(files=dict(hub.files))) as mirror:
        mirror.fault = only(first, status_once(404, {}, times=99))
        download = Download(hub, tmp_path / "w", endpoints=(mirror.url, hub.url))
        download.finish()
    assert set(hub.counts) == {first}
    assert is_whole(hub, tmp_path / "w")


def test_a_mirror_that_lies_costs_one_round_and_the_next_is_asked(
    hub: HubServer, tmp_path: Path
) -> None:
    with running_hub(HubServer(files=dict(hub.files))) as mirror:

        def flipped(answer: Answer) -> None:
            answer.content = answer.content[:-1] + b"?"

        mirror.fault = only("model-00001-of-00002.safetensors", flipped)
        finished = Download(hub, tmp_path / "w", endpoints=(mirror.url, hub.url)).finish()
    assert (finished.num_refetched, finished.is_proven) == (1, True)
    assert is_whole(hub, tmp_path / "w")


def test_one_file_that_nobody_gives_does_not_keep_the_others(
    hub: HubServer, tmp_path: Path
) -> None:
    missing = "model-00001-of-00002.safetensors"
    hub.fault = only(missing, status_once(500, {}, times=99))
    with pytest.raises(EndpointError, match="the server answers 500"):
        Download(hub, tmp_path / "w", retries=1).finish()
    for path in set(hub.files) - {missing}:
        assert (tmp_path / "w" / path).read_bytes() == hub.files[path]
    hub.fault = lambda _: None
    Download(hub, tmp_path / "w").finish()
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize("num_endpoints", [1, 2])
def test_an_outage_of_every_endpoint_is_waited_out_whatever_their_number(
    hub: HubServer, tmp_path: Path, num_endpoints: int
) -> None:
    """Six failures in a row for each endpoint, as the retries allow, and then all is well."""
    hub.files = {BIG: hub.files["model-00001-of-00002.safetensors"]}
    with running_hub(HubServer(files=dict(hub.files))) as mirror:
        for server in (hub, mirror):
            server.fault = status_once(503, {}, times=5)
        endpoints = (hub.url, mirror.url)[:num_endpoints]
        download = Download(hub, tmp_path / "w", connections=1, endpoints=endpoints, retries=5)
        download.finish()
    assert len(download.of(Retried)) == 5 * num_endpoints
    assert is_whole(hub, tmp_path / "w")


def test_an_outage_in_the_middle_is_waited_out(hub: HubServer, tmp_path: Path) -> None:
    """For a while every connection is cut at once, as where a router restarts."""
    hub.files = {BIG: random.Random(1).randbytes(8 * 2**20)}

    def fault(answer: Answer) -> None:
        answer.rate = 16e6
        if hub.num_bytes() > 2 * 2**20 and hub.count("out") <= 6:
            answer.cut_after = 0
        elif hub.counts["out"] == 0:
            answer.cut_after = 3 * 2**20

    hub.fault = fault
    download = Download(hub, tmp_path / "w", connections=2, retries=40)
    assert download.finish().num_retries >= 6
    assert is_whole(hub, tmp_path / "w")


def test_by_default_an_outage_of_half_a_minute_is_waited_out() -> None:
    """As by default: eight failures in a row, and pauses that grow."""
    pauses: list[float] = []
    stopped = threading.Event()
    stopped.set()  # nobody waits, and what would have been waited for is told
    patience = Patience(
        "x",
        max_retries=8,
        backoff_s=0.5,
        num_endpoints=1,
        stopped=stopped,
        on_retry=lambda _what, _why, wait_s: pauses.append(wait_s),
    )
    for _ in range(8):
        with pytest.raises(StoppedError):
            patience.failed(unreachable("no route", where="x"))
    with pytest.raises(EndpointError):
        patience.failed(unreachable("no route", where="x"))
    assert len(pauses) == 8
    assert sum(pauses) > 30
    assert pauses[-1] < 60


def test_no_more_connections_are_open_than_asked_for(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {f"{number}.safetensors": bytes([number]) * 2**20 for number in range(12)}
    hub.fault = lambda answer: setattr(answer, "rate", 8e6)
    Download(hub, tmp_path / "w", connections=3).finish()
    assert hub.most_at_once == 3


def test_one_large_file_is_shared_by_all_connections(hub: HubServer, tmp_path: Path) -> None:
    """Each connection gives 4 MB/s, as hubs limit it: the last file must not be left to one."""
    hub.files = {BIG: random.Random(1).randbytes(56 * 2**20)}
    hub.fault = lambda answer: setattr(answer, "rate", 16e6)
    Download(hub, tmp_path / "w", connections=4).finish()
    assert hub.most_at_once >= 4
    assert is_whole(hub, tmp_path / "w")


def peak_bytes(process: subprocess.Popen[bytes]) -> int:
    """Resident memory of a process at its most, until it ends."""
    peak = 0
    while process.poll() is None:
        with suppress(OSError, IndexError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            peak = max(peak, int(status.partition("VmHWM:")[2].split()[0]) * 1024)
        time.sleep(0.02)
    return peak


def test_memory_does_not_grow_with_the_files(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {BIG: random.Random(1).randbytes(160 * 2**20)}
    with subprocess.Popen(
        command(hub, tmp_path / "w"), env=environment(), stderr=subprocess.DEVNULL
    ) as process:
        peak = peak_bytes(process)
    assert process.returncode == 0
    assert 20e6 < peak < 150e6


def test_a_rate_is_kept_by_all_connections_together(hub: HubServer, fetch: Fetch) -> None:
    hub.files = {f"{number}.safetensors": bytes([number]) * 2**20 for number in range(6)}
    result = json.loads(fetch("--limit-rate", "2MB/s", "--json").stdout)["result"]
    # Never faster; how much slower is the machine's affair.
    assert 0.2e6 < result["bytes_downloaded"] / result["seconds"] < 2.4e6


def between(text: str, *, it_is: str) -> Callable[[threading.Event], Throttle]:
    """Hours, with a clock that now shows ``it_is`` and goes on as the real one does."""
    shift = datetime.fromisoformat(f"2026-11-29T{it_is}") - datetime.now()
    return lambda stopped: Throttle(
        limit_bytes_per_s=None,
        hours=parse_hours(text),
        stopped=stopped,
        now=lambda: datetime.now() + shift,
    )


def test_nothing_is_asked_for_until_the_window_opens(hub: HubServer, tmp_path: Path) -> None:
    start = time.monotonic()
    opening = between("22:00-06:00", it_is="21:59:57")
    download = Download(hub, tmp_path / "w", throttle=opening)
    download.finish()
    asked = [request.at_s for request in hub.asked if not request.path.startswith("/api/")]
    assert min(asked) - start >= 3
    assert len(download.of(Paused)) == 1
    assert is_whole(hub, tmp_path / "w")


def test_a_window_that_closes_meanwhile_pauses_and_loses_nothing(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.fault = lambda answer: setattr(answer, "rate", 4e5)
    closing = between("22:00-06:00", it_is="05:59:58")
    download = Download(hub, tmp_path / "w", throttle=closing)
    download.until(Paused)
    num_asked = len(hub.asked)
    download.until(Progress)
    assert len(hub.asked) == num_asked
    download.steps.close()
    hub.fault = lambda _: None
    assert Download(hub, tmp_path / "w").finish().bytes_reused > 0
    assert is_whole(hub, tmp_path / "w")
