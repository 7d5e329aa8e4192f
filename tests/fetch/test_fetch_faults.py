"""What networks and servers do wrong, and what comes of it."""

import json
import time
from pathlib import Path

import pytest

from tests.fetch.conftest import Fetch, is_whole
from tests.fetch.direct import Download
from tests.fetch.hub_server import Answer, Fault, HubServer, status_once

FIRST = "model-00001-of-00002.safetensors"


def cut_once(answer: Answer) -> None:
    if answer.number <= 2:
        answer.cut_after = 256 * 1024


def stall_once(answer: Answer) -> None:
    if answer.path == FIRST and answer.number == 1:
        answer.stall_after, answer.stall_s = 128 * 1024, 5.0


def truncated(answer: Answer) -> None:
    if answer.path == FIRST and answer.number == 1:
        answer.content = answer.content[: len(answer.content) // 2]


def shorter_length(answer: Answer) -> None:
    if answer.number == 1 and len(answer.content) > 10:
        answer.content = answer.content[:-7]
        answer.headers["Content-Length"] = str(len(answer.content))


def page(answer: Answer) -> None:
    if answer.number == 1:
        answer.status, answer.content = 200, b"<html>please sign in</html>"
        answer.headers = {
            "Content-Type": "text/html",
            "Content-Length": str(len(answer.content)),
        }


def other_range(answer: Answer) -> None:
    if answer.path == FIRST and answer.number == 1:
        answer.headers["Content-Range"] = f"bytes 5-{answer.end - 1}/{answer.size}"


def flipped_once(answer: Answer) -> None:
    if answer.path == FIRST and answer.number == 1 and len(answer.content) > 1000:
        answer.content = answer.content[:999] + bytes([answer.content[999] ^ 1]) + (
            answer.content[1000:]
        )  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [
        cut_once, stall_once, truncated, shorter_length, page, other_range, flipped_once,
        status_once(503, {}), status_once(429, {"Retry-After": "0"}), status_once(416, {}),
        status_once(500, {}, times=2),
    ],
    ids=lambda fault: getattr(fault, "__name__", "status"),
)  # fmt: skip
def test_a_passing_fault_is_overcome(hub: HubServer, tmp_path: Path, fault: Fault) -> None:
    hub.fault = fault
    Download(hub, tmp_path / "w", stall_s=1.0).finish()
    assert is_whole(hub, tmp_path / "w")


def test_a_flipped_byte_is_reported_and_only_that_file_fetched_again(
    hub: HubServer, fetch: Fetch
) -> None:
    hub.fault = flipped_once
    done = fetch("--json")
    result = json.loads(done.stdout)["result"]
    assert f"wrong bytes: {FIRST}" in done.stderr
    assert (result["num_refetched"], result["verified"]) == (1, True)
    assert hub.num_bytes() < sum(map(len, hub.files.values())) + len(hub.files[FIRST]) + 1


def test_bytes_that_are_wrong_every_time_end_in_exit_5_and_are_not_kept(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    def flipped(answer: Answer) -> None:
        if answer.path == FIRST:
            answer.content = b"!" + answer.content[1:]

    hub.fault = flipped
    done = fetch()
    assert done.returncode == 5
    assert "wrong digest every time" in done.stderr
    assert not (tmp_path / "w" / FIRST).exists()
    assert (tmp_path / "w" / "model-00002-of-00002.safetensors").exists()
    hub.fault = lambda _: None
    assert fetch().returncode == 0
    assert is_whole(hub, tmp_path / "w")


def test_content_that_changed_under_its_commit_is_not_taken(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.shown = {FIRST: hub.files[FIRST][:-1] + b"?"}
    done = fetch()
    assert done.returncode == 5
    assert "changed under the same commit" in done.stderr
    assert not (tmp_path / "w" / FIRST).exists()


def test_a_server_without_ranges_still_gives_all(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    def whole(answer: Answer) -> None:
        answer.status, answer.content = 200, hub.files[answer.path]
        answer.headers.pop("Content-Range", None)
        answer.headers["Content-Length"] = str(len(answer.content))
        if answer.number == 1 and answer.path == FIRST:
            answer.cut_after = 2**20

    hub.fault = whole
    assert fetch().returncode == 0
    assert is_whole(hub, tmp_path / "w")


def test_retry_after_is_waited_for(hub: HubServer, fetch: Fetch) -> None:
    hub.fault = status_once(429, {"Retry-After": "2"})
    start = time.monotonic()
    assert fetch("--include", "config.json").returncode == 0
    assert time.monotonic() - start > 2


def test_a_dead_endpoint_is_exit_6_and_the_next_one_is_used(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    live, hub.url = hub.url, "http://127.0.0.1:9"
    done = fetch("--retries", "1")
    assert (done.returncode, done.stdout) == (6, "")
    assert fetch("--endpoint", live).returncode == 0
    hub.url = live
    assert is_whole(hub, tmp_path / "w")


def test_the_token_goes_to_the_endpoint_alone_and_is_written_nowhere(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.token = "hf_canary0123456789"
    assert fetch().returncode == 3
    done = fetch("--events", HF_TOKEN=hub.token)
    assert done.returncode == 0
    sent = {r.path.startswith("/cdn/"): "Authorization" in r.headers for r in hub.asked}
    assert sent == {True: False, False: True}
    failed = fetch("--debug", "--revision", "nowhere", HF_TOKEN=hub.token)
    assert failed.returncode == 3
    files = b"".join(p.read_bytes() for p in (tmp_path / "w").rglob("*") if p.is_file())
    for text in (done.stdout, done.stderr, failed.stdout, failed.stderr):
        assert "canary" not in text
        assert "signature=secret" not in text
    assert b"canary" not in files
