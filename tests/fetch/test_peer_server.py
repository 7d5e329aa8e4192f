"""A folder served to other machines: the hub's protocol, proven files alone, nothing written."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.fetch.byte_range import ByteRange, asked_range
from k31ctl.fetch.peer_server import PeerServer, ServeRequest, serve
from tests.fetch.conftest import environment, fetched, is_whole
from tests.fetch.hub_server import COMMIT, Answer, HubServer
from tests.fetch.peer_process import ServingProcess, serving
from tests.program import program

LARGEST = "model-00001-of-00002.safetensors"
DOWNLOAD = """
import sys
from huggingface_hub import HfApi, snapshot_download
print(snapshot_download(sys.argv[1], local_dir=sys.argv[2]))
info = HfApi().model_info(sys.argv[1], files_metadata=True)
print(info.sha, sum(s.size for s in info.siblings), sum(bool(s.lfs) for s in info.siblings))
"""


@pytest.fixture
def node0(hub: HubServer, tmp_path: Path) -> Path:
    assert fetched(hub, tmp_path / "node0").returncode == 0
    return tmp_path / "node0"


@pytest.fixture
def peer(node0: Path) -> Iterator[ServingProcess]:
    with serving(node0) as running:
        yield running


def ask(
    url: str, path: str, *, method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


def test_the_hub_s_own_client_downloads_from_it(
    hub: HubServer, peer: ServingProcess, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", DOWNLOAD, hub.repo, str(tmp_path / "hf")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env=environment(HF_ENDPOINT=peer.url, HF_HOME=str(tmp_path / "home")),
    )
    size = sum(len(content) for content in hub.files.values())
    assert done.stdout.splitlines()[-1] == f"{COMMIT} {size} 3"
    assert all((tmp_path / "hf" / p).read_bytes() == c for p, c in hub.files.items())


@pytest.mark.parametrize("options", [("--offline", "--from-peer"), ("--endpoint",)])
def test_our_own_client_takes_it_as_a_peer_and_as_a_hub(
    hub: HubServer, peer: ServingProcess, tmp_path: Path, options: tuple[str, ...]
) -> None:
    hub.forget()
    done = fetched(hub, tmp_path / "b", *options, peer.url)
    assert (done.returncode, is_whole(hub, tmp_path / "b"), len(hub.asked)) == (0, True, 0)


def test_a_file_comes_with_what_a_hub_says_of_it(hub: HubServer, peer: ServingProcess) -> None:
    status, headers, content = ask(peer.url, f"/{hub.repo}/resolve/main/{LARGEST}", method="HEAD")
    assert (status, content) == (200, b"")
    assert headers["X-Repo-Commit"] == COMMIT
    assert headers["ETag"] == headers["X-Linked-Etag"] == f'"{hub.sha256(LARGEST)}"'
    assert headers["Content-Length"] == headers["X-Linked-Size"] == str(len(hub.files[LARGEST]))


@pytest.mark.parametrize(
    ("span", "status", "start", "end"),
    [
        ("bytes=0-0", 206, 0, 1),
        ("bytes=100-299", 206, 100, 300),
        ("bytes=-5", 206, -5, None),
        ("bytes=7-999999999999", 206, 7, None),
        ("bytes=0-1,5-6", 200, 0, None),
        ("lines=0-1", 200, 0, None),
    ],
)
def test_ranges_are_cut_as_asked(
    hub: HubServer, peer: ServingProcess, span: str, status: int, start: int, end: int | None
) -> None:
    found = ask(peer.url, f"/{hub.repo}/resolve/{COMMIT}/{LARGEST}", Range=span)
    assert (found[0], found[2]) == (status, hub.files[LARGEST][start:end])


def test_a_range_behind_the_end_is_refused(hub: HubServer, peer: ServingProcess) -> None:
    status, headers, _ = ask(peer.url, f"/{hub.repo}/resolve/main/LICENSE", Range="bytes=7-")
    assert (status, headers["Content-Range"]) == (416, "bytes */7")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/owner/name/resolve/main/../../../../etc/passwd", "EntryNotFound"),
        ("/owner/name/resolve/main/%2e%2e/%2e%2e/etc/passwd", "EntryNotFound"),
        ("/owner/name/resolve/main//etc/passwd", "EntryNotFound"),
        ("/owner/name/resolve/main/.k31ctl/journal.json", "EntryNotFound"),
        ("/owner/name/resolve/main/sub", "EntryNotFound"),
        ("/owner/name/resolve/main/notes.txt", "EntryNotFound"),
        ("/owner/name/resolve/v2/LICENSE", "RevisionNotFound"),
        ("/other/name/resolve/main/LICENSE", "RepoNotFound"),
        ("/api/models/owner/name/revision/v2", "RevisionNotFound"),
        ("/etc/passwd", "EntryNotFound"),
    ],
)
def test_nothing_but_the_commit_s_files_is_given(
    node0: Path, peer: ServingProcess, path: str, code: str
) -> None:
    (node0 / "notes.txt").write_text("private")
    status, headers, _ = ask(peer.url, path)
    assert (status, headers["X-Error-Code"]) == (404, code)


def test_a_file_that_changed_since_its_proof_is_not_given(
    hub: HubServer, node0: Path, peer: ServingProcess
) -> None:
    path = f"/{hub.repo}/resolve/main/LICENSE"
    assert ask(peer.url, path)[0] == 200
    (node0 / "LICENSE").write_bytes(b"you MAY")
    assert ask(peer.url, path)[0] == 404


def test_a_link_out_of_the_folder_is_not_followed(
    hub: HubServer, node0: Path, peer: ServingProcess, tmp_path: Path
) -> None:
    times = (node0 / "LICENSE").stat()
    secret = tmp_path / "secret"
    secret.write_bytes(b"secrets")  # as long as the file that it stands for
    os.utime(secret, ns=(times.st_atime_ns, times.st_mtime_ns))
    (node0 / "LICENSE").unlink()
    (node0 / "LICENSE").symlink_to(secret)
    assert ask(peer.url, f"/{hub.repo}/resolve/main/LICENSE")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_written(hub: HubServer, peer: ServingProcess, method: str) -> None:
    assert ask(peer.url, f"/{hub.repo}/resolve/main/LICENSE", method=method)[0] == 501


def test_a_token_keeps_others_out_and_is_not_the_hub_s(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    with serving(node0, K31CTL_PEER_TOKEN="among-us") as peer:
        assert ask(peer.url, "/")[0] == 401
        assert ask(peer.url, "/", Authorization="Bearer among-us")[0] == 200
        refused = fetched(
            hub, tmp_path / "b", "--offline", "--from-peer", peer.url, HF_TOKEN="among-us"
        )
        assert refused.returncode == 3
        done = fetched(
            hub, tmp_path / "b", "--offline", "--from-peer", peer.url, K31CTL_PEER_TOKEN="among-us"
        )
        assert done.returncode == 0


def test_more_connections_than_allowed_are_told_to_come_back(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    with serving(node0, "--clients", "1") as peer:
        parts = urlsplit(peer.url)
        first = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
        first.request("GET", "/")
        first.getresponse().read()
        status, headers, _ = ask(peer.url, "/")
        assert (status, headers["Retry-After"]) == (503, "1")
        first.close()
        done = fetched(hub, tmp_path / "b", "--from-peer", peer.url, "--connections", "4")
        assert (done.returncode, is_whole(hub, tmp_path / "b")) == (0, True)


def test_a_folder_that_is_being_filled_gives_each_file_once_it_is_proven(
    hub: HubServer, tmp_path: Path
) -> None:
    may_go_on = threading.Event()

    def held_back(answer: Answer) -> None:
        if LARGEST in answer.path:
            may_go_on.wait(60)

    hub.fault = held_back
    filling = subprocess.Popen(
        [
            *[sys.executable, "-m", "k31ctl", "fetch", hub.repo, "--to", str(tmp_path / "node0")],
            *["--endpoint", hub.url, "--connections", "1"],
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    while not (tmp_path / "node0/.k31ctl/snapshot.json").exists():
        time.sleep(0.02)
    with serving(tmp_path / "node0") as peer:
        early = ask(peer.url, f"/{hub.repo}/resolve/main/{LARGEST}")
        may_go_on.set()
        done = fetched(hub, tmp_path / "b", "--from-peer", peer.url, "--offline")
    assert filling.wait(timeout=60) == 0
    assert (early[0], early[1]["Retry-After"]) == (503, "2")
    assert (done.returncode, is_whole(hub, tmp_path / "b")) == (0, True)


def test_a_folder_of_an_older_version_is_given_too(
    hub: HubServer, node0: Path, peer: ServingProcess
) -> None:
    (node0 / ".k31ctl/snapshot.json").unlink()
    record = json.loads((node0 / "k31ctl-manifest.json").read_text())
    for file in record["files"]:
        del file["blob_id"], file["sources"]
    (node0 / "k31ctl-manifest.json").write_text(json.dumps(record))
    status, headers, content = ask(peer.url, f"/{hub.repo}/resolve/main/LICENSE")
    assert (status, content) == (200, b"you may")
    assert headers["ETag"] == f'"{hub.sha256("LICENSE")}"'


def test_a_folder_copied_by_other_means_is_given_once_it_is_verified(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    for path in (*hub.files, "k31ctl-manifest.json"):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_bytes((node0 / path).read_bytes())
    with serving(copy) as peer:
        path = f"/{hub.repo}/resolve/main/LICENSE"
        assert ask(peer.url, path)[0] == 404
        # its config is no model's: the structure cannot be held against one
        program("verify", str(copy), environment=environment())
        assert ask(peer.url, path)[::2] == (200, b"you may")


def test_ctrl_c_ends_it_with_what_was_sent(hub: HubServer, node0: Path) -> None:
    with serving(node0) as peer:
        ask(peer.url, f"/{hub.repo}/resolve/main/LICENSE")
        code, out, err = peer.stop()
    assert (code, err) == (130, "")
    assert "1 requests, 7 B sent" in out


def test_its_state_is_one_document(hub: HubServer, peer: ServingProcess) -> None:
    state = json.loads(ask(peer.url, "/")[2])
    size = sum(len(content) for content in hub.files.values())
    assert state | {"server": ""} == {
        "server": "",
        "repo": hub.repo,
        "revision": "main",
        "commit": COMMIT,
        "files": 5,
        "files_proven": 5,
        "bytes": size,
        "bytes_proven": size,
    }


def test_a_folder_that_says_nothing_is_refused(tmp_path: Path) -> None:
    done = program("fetch", "--serve", "--to", str(tmp_path), environment=environment())
    assert done.returncode == 3
    assert done.stderr.startswith("error: nothing here says what the files must be\n")


@given(size=st.integers(0, 50), first=st.integers(0, 60), last=st.integers(0, 60))
def test_a_range_is_a_slice_of_the_content(size: int, first: int, last: int) -> None:
    content = bytes(range(size))
    try:
        found = asked_range(f"bytes={first}-{last}", size_bytes=size)
    except ValueError:
        assert first >= size
        assert last >= first
        return
    span = found or ByteRange(start=0, end=size)
    wanted = content[first : last + 1] if found else content
    assert content[span.start : span.end] == wanted
    assert (found is None) == (last < first)


@given(st.text(max_size=20))
def test_nonsense_means_the_whole_or_no_range(header: str) -> None:
    try:
        found = asked_range(header, size_bytes=10)
    except ValueError:
        return
    assert found is None or 0 <= found.start < found.end <= 10


def test_a_request_that_trickles_in_does_not_hold_its_connection(node0: Path) -> None:
    request = ServeRequest(
        folder=node0,
        host="127.0.0.1",
        port=0,
        most_connections=1,
        rate_bytes_per_s=None,
        token=None,
    )
    server = PeerServer(request)
    server.longest_request_s = 0.5
    events = serve(server)
    next(events)
    thread = threading.Thread(target=lambda: list(events))
    thread.start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as slow:
            slow.sendall(b"GET / HTTP/1.1\r\nX: ")
            with suppress(OSError):  # it is cut while it sends
                for _ in range(300):
                    slow.sendall(b"x")
                    time.sleep(0.1)
        while server.num_connections:
            time.sleep(0.01)
    finally:
        server.end()
        thread.join()
    assert server.num_refused == 0
