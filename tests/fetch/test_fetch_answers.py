"""What servers answer, and what comes of it: lengths, encodings, redirects, addresses that run out.

Each fault of the first table passes, and the download goes on in the same run; each of the second
stays, and ends in one clear failure.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from k31ctl.errors import InputError, K31Error, NotProvenError, RefusedError
from k31ctl.fetch.manifest import read_manifest
from k31ctl.fetch.partial_marker import MARKER_NAME, MARKER_SCHEMA, require_whole
from tests.fetch.conftest import Fetch, is_whole
from tests.fetch.direct import Download
from tests.fetch.hub_server import COMMIT, REPO, Answer, Fault, HubServer, running_hub, status_once

FIRST = "model-00001-of-00002.safetensors"


def whole(answer: Answer) -> None:
    """As a server without ranges: all of the file, whatever was asked for."""
    answer.headers.pop("Content-Range", None)
    answer.headers["Content-Length"] = str(answer.size)
    answer.status, answer.content = 200, answer.file


def chunked(answer: Answer) -> None:
    answer.is_chunked = True


def until_it_closes(answer: Answer) -> None:
    answer.protocol = "HTTP/1.0"
    answer.headers.pop("Content-Length")


def longer_length(answer: Answer) -> None:
    if answer.number == 1:
        answer.headers["Content-Length"] = str(len(answer.content) + 1000)


def packed_once(answer: Answer) -> None:
    if answer.number == 1 and answer.content:
        answer.content = gzip.compress(answer.content)
        answer.headers |= {
            "Content-Encoding": "gzip",
            "Content-Length": str(len(answer.content)),
        }


def trickle_once(answer: Answer) -> None:
    if answer.path == FIRST and answer.number == 1:
        answer.piece, answer.rate = 1, 20.0


def trickle_until_it_closes_once(answer: Answer) -> None:
    trickle_once(answer)
    until_it_closes(answer)


def redirected_away_is_refused_once(answer: Answer) -> None:
    status_once(403, {})(answer)


@pytest.mark.parametrize(
    "fault",
    [
        chunked, until_it_closes, longer_length, packed_once, trickle_once,
        trickle_until_it_closes_once, redirected_away_is_refused_once,
        status_once(400, {}), status_once(408, {}), status_once(404, {}),
    ],
    ids=lambda fault: getattr(fault, "__name__", "status"),
)  # fmt: skip
def test_a_passing_fault_is_overcome(hub: HubServer, tmp_path: Path, fault: Fault) -> None:
    hub.small = frozenset()  # every file has its address elsewhere, as in storage behind a hub
    hub.fault = fault
    Download(hub, tmp_path / "w", stall_s=1.0).finish()
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize("fault", [whole, chunked, until_it_closes], ids=lambda f: f.__name__)
def test_a_part_is_gone_on_with_by_a_server_of_any_kind(
    hub: HubServer, tmp_path: Path, fault: Fault
) -> None:
    hub.files = {FIRST: hub.files[FIRST] * 4}
    hub.fault = lambda answer: setattr(answer, "rate", 8e6)
    first = Download(hub, tmp_path / "w", connections=1)
    while not hub.num_bytes() > 2**21:
        first.events.append(next(first.steps))
    first.steps.close()
    hub.fault = fault
    finished = Download(hub, tmp_path / "w").finish()
    assert finished.bytes_reused > 2**20
    assert is_whole(hub, tmp_path / "w")


def test_a_server_that_sends_whole_files_without_a_length_is_enough(
    hub: HubServer, tmp_path: Path
) -> None:
    def fault(answer: Answer) -> None:
        whole(answer)
        chunked(answer)

    hub.fault = fault
    Download(hub, tmp_path / "w").finish()
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize(
    "spelt",
    [
        lambda usual: usual.replace("%20", " ").replace("%C3%A9", "é".encode().decode("latin-1")),
        lambda usual: usual.partition("/cdn")[1] + usual.partition("/cdn")[2],
    ],
    ids=["blanks and accents", "without a host"],
)
def test_a_redirect_is_followed_however_it_is_spelt(
    hub: HubServer, tmp_path: Path, spelt: Callable[[str], str]
) -> None:
    hub.files = {"sub dir/é 1.safetensors": b"x" * 1000}
    hub.location = lambda _, usual: spelt(usual)
    Download(hub, tmp_path / "w").finish()
    assert is_whole(hub, tmp_path / "w")


def test_an_address_that_runs_out_within_a_file_is_asked_for_again(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.files = {FIRST: hub.files[FIRST] * 12}

    def fault(answer: Answer) -> None:
        answer.rate = 16e6
        if answer.number == 3:
            status_once(403, {}, times=3)(answer)

    hub.fault = fault
    finished = Download(hub, tmp_path / "w").finish()
    assert hub.counts[FIRST] > 3
    assert finished.num_retries == 0
    assert is_whole(hub, tmp_path / "w")


def packed(answer: Answer) -> None:
    answer.content = gzip.compress(answer.content)
    answer.headers |= {"Content-Encoding": "gzip", "Content-Length": str(len(answer.content))}


def page_in_chunks(answer: Answer) -> None:
    whole(answer)
    answer.content, answer.is_chunked = b"<html>please sign in</html>", True
    answer.headers["Content-Type"] = "text/html"


def shorter_for_good(answer: Answer) -> None:
    answer.content = answer.content[:-5]
    answer.headers["Content-Length"] = str(len(answer.content))


@pytest.mark.parametrize(
    ("fault", "exit_code", "told"),
    [
        (packed, 6, "the bytes come encoded (gzip)"),
        (page_in_chunks, 6, "a page came back"),
        (shorter_for_good, 6, "bytes where it says"),
        (status_once(416, {}, times=99), 6, "the server answers 416"),
        (status_once(404, {"X-Error-Code": "EntryNotFound"}, times=99), 3, "no such file"),
        (status_once(403, {}, times=99), 6, "the address it redirects to answers 403"),
        (status_once(403, {"X-Error-Code": "GatedRepo"}, times=99), 4, "private or gated"),
    ],
    ids=["gzip", "page", "short", "416", "404", "403", "gated"],
)
def test_a_lasting_fault_is_one_clear_failure(
    hub: HubServer, tmp_path: Path, fault: Fault, exit_code: int, told: str
) -> None:
    hub.files = {FIRST: hub.files[FIRST]}
    hub.fault = fault
    with pytest.raises(K31Error) as failed:
        Download(hub, tmp_path / "w", retries=1).finish()
    assert failed.value.exit_code == exit_code
    assert told in failed.value.what
    hub.fault = lambda _: None
    Download(hub, tmp_path / "w").finish()
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize(
    ("location", "told"),
    [
        (f"/{REPO}/resolve/{COMMIT}/{FIRST}", "redirects more than 5 times"),
        ("", "redirects to nowhere"),
        ("ftp://127.0.0.1/x", "redirects to no address"),
        ("http://127.0.0.1:99999999/x", "redirects to no address"),
        ("http://[::1/x", "redirects to no address"),
        ("http://a..b/x", "no name of a host"),
        (f"http://{'a' * 70}.example/x", "no name of a host"),
        ("http://127.0.0.1 x/x", "cannot be reached"),
    ],
)
def test_a_redirect_that_leads_nowhere_is_one_clear_failure(
    hub: HubServer, tmp_path: Path, location: str, told: str
) -> None:
    hub.files = {FIRST: hub.files[FIRST]}
    hub.location = lambda *_: location
    with pytest.raises(K31Error, match=told) as failed:
        Download(hub, tmp_path / "w", retries=1).finish()
    assert failed.value.exit_code == 6


@pytest.mark.parametrize("kind", ["list", "bytes"])
def test_after_a_redirect_to_no_host_the_next_endpoint_is_asked(
    hub: HubServer, tmp_path: Path, kind: str
) -> None:
    elsewhere = "http://a..b/x"
    bad = HubServer(files=hub.files, location=lambda *_: elsewhere)
    if kind == "list":
        bad.api_fault = lambda _: (302, {"Location": elsewhere}, b"")
    with running_hub(bad):
        Download(hub, tmp_path / "w", endpoints=(bad.url, hub.url)).finish()
    assert is_whole(hub, tmp_path / "w")
    assert bad.asked


def test_a_token_that_is_withdrawn_meanwhile_is_told_as_that(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.files = {FIRST: hub.files[FIRST] * 12}
    hub.token = "hf_first"

    def fault(answer: Answer) -> None:
        answer.rate = 16e6
        if answer.number > 2:
            hub.token = "hf_second"
            status_once(403, {}, times=99)(answer)

    hub.fault = fault
    with pytest.raises(K31Error, match="private or gated") as failed:
        Download(hub, tmp_path / "w", token="hf_first").finish()
    assert failed.value.exit_code == 4


@pytest.mark.parametrize("path", ["../x", "/x", "a//b", "a\nb", "\x1b[2Jx", "\udcffx", "a\\b", "."])
def test_a_name_that_is_no_safe_path_is_refused_and_nothing_written(
    hub: HubServer, tmp_path: Path, path: str
) -> None:
    info = hub.info()
    info["siblings"].append({"rfilename": path, "size": 1, "blobId": "0" * 40})
    body = json.dumps(info).encode()
    hub.api_fault = lambda _: (200, {"Content-Type": "application/json"}, body)
    with pytest.raises(InputError, match="unsafe path") as refused:
        Download(hub, tmp_path / "w").finish()
    assert str(refused.value).isprintable()
    assert not (tmp_path / "w").exists()


def test_what_this_program_writes_is_not_taken_from_a_repository(
    hub: HubServer, tmp_path: Path
) -> None:
    """As in a repository that was uploaded from a folder of ours."""
    ours = {".k31ctl/journal.json": b'{"repo": "other"}', "k31ctl-manifest.json": b"{}"}
    theirs = dict(hub.files)
    hub.files = theirs | ours
    Download(hub, tmp_path / "w").finish()
    hub.files = theirs
    assert is_whole(hub, tmp_path / "w")
    record = read_manifest(tmp_path / "w")
    assert record is not None
    assert (record.is_complete, len(record.files)) == (True, len(theirs))
    hub.files = theirs | ours
    assert Download(hub, tmp_path / "w").finish().bytes_downloaded == 0


@pytest.mark.parametrize("options", [(), ("--exclude", "k31ctl-*"), ("--include", "*.json")])
def test_a_repository_that_is_a_part_does_not_become_a_whole(
    hub: HubServer, fetch: Fetch, tmp_path: Path, options: tuple[str, ...]
) -> None:
    mark = {"schema": MARKER_SCHEMA, "selection": "--layers 0", "key": "x"}
    hub.files = hub.files | {MARKER_NAME: json.dumps(mark).encode()}
    done = fetch(*options)
    assert done.returncode == 0, done.stderr
    assert "a part of a checkpoint (k31ctl-partial.json)" in done.stderr
    with pytest.raises(RefusedError, match="this is a part of a checkpoint: --layers 0"):
        require_whole(tmp_path / "w")


@pytest.mark.parametrize(
    "fault",
    [status_once(500, {}, times=99), status_once(403, {}, times=99), page_in_chunks],
    ids=["500", "403", "page"],
)
def test_a_token_and_a_signature_are_in_no_message_of_any_failure(
    hub: HubServer, fetch: Fetch, tmp_path: Path, fault: Fault
) -> None:
    hub.token, hub.fault, hub.small = "hf_canary0123456789", fault, frozenset()
    done = fetch("--debug", "--events", "--retries", "1", HF_TOKEN=hub.token)
    assert (done.returncode, "Traceback" in done.stderr) == (6, True)
    kept = [path.read_bytes() for path in (tmp_path / "w").rglob("*") if path.is_file()]
    for secret in (hub.token, "signature=secret"):
        assert secret not in done.stdout + done.stderr
        assert secret.encode() not in b"".join(kept)


def test_an_empty_file_with_another_digest_ends_the_run(hub: HubServer, tmp_path: Path) -> None:
    """Nothing of it can be asked for again, so nothing can come of asking."""
    listed = hub.info()
    listed["siblings"].append(
        {"rfilename": "z.bin", "size": 0, "lfs": {"sha256": "a" * 64, "size": 0}}
    )
    hub.api_fault = lambda _: (200, {}, json.dumps(listed).encode())
    with pytest.raises(NotProvenError, match=r"z\.bin arrives with a wrong digest"):
        Download(hub, tmp_path / "w").finish()
