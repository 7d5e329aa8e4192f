"""Copies from another node: proven against the hub where it answers, said where it does not."""

import json
from pathlib import Path

import pytest

from k31ctl.fetch.manifest import Manifest, read_manifest
from tests.fetch.conftest import fetched, is_whole
from tests.fetch.hub_server import Answer, HubServer
from tests.fetch.peer_process import flip, serving

LARGEST = "model-00001-of-00002.safetensors"
NOWHERE = "http://127.0.0.1:9"


def manifest_in(folder: Path) -> Manifest:
    found = read_manifest(folder)
    assert found is not None
    return found


@pytest.fixture
def node0(hub: HubServer, tmp_path: Path) -> Path:
    """A node that has everything."""
    assert fetched(hub, tmp_path / "node0").returncode == 0
    hub.forget()
    return tmp_path / "node0"


def test_a_folder_gives_all_bytes_and_the_hub_only_the_list(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    done = fetched(hub, tmp_path / "b", "--from-peer", str(node0))
    assert (done.returncode, is_whole(hub, tmp_path / "b"), hub.num_bytes()) == (0, True, 0)
    assert f"proven  against what {hub.url} publishes" in done.stdout


def test_the_record_says_where_each_file_came_from(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    assert fetched(hub, tmp_path / "b", "--from-peer", str(node0)).returncode == 0
    files = {file.path: file.sources for file in manifest_in(tmp_path / "b").files}
    assert files[LARGEST] == (str(node0),)
    assert {file.path: file.sources for file in manifest_in(node0).files}[LARGEST] == (hub.url,)


@pytest.mark.parametrize("options", [("--offline",), ("--endpoint", NOWHERE)])
def test_without_a_hub_the_answer_says_whose_word_it_rests_on(
    hub: HubServer, node0: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = fetched(hub, tmp_path / "b", "--from-peer", str(node0), *options)
    assert (done.returncode, is_whole(hub, tmp_path / "b"), len(hub.asked)) == (0, True, 0)
    reason = "--offline" if options == ("--offline",) else f"{NOWHERE}: connection refused"
    assert f"proven  against the record of {node0} alone, no hub ({reason})" in done.stdout
    proven = manifest_in(tmp_path / "b").proven_against
    assert proven is not None
    assert (proven.kind, proven.source, proven.reason) == ("peer", str(node0), reason)


def test_a_damaged_file_of_a_peer_is_noticed_and_comes_from_the_hub(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    flip(node0 / LARGEST, 1000)
    done = fetched(hub, tmp_path / "b", "--from-peer", str(node0))
    assert (done.returncode, is_whole(hub, tmp_path / "b")) == (0, True)
    assert f"wrong bytes: {LARGEST}: its SHA-256 is not the published one (from {node0})" in (
        done.stderr
    )
    assert {f.path: f.sources for f in manifest_in(tmp_path / "b").files}[LARGEST] == (hub.url,)
    names = {request.path.partition("?")[0].rpartition("/")[2] for request in hub.asked}
    assert names == {"main", LARGEST}  # the list of files, and this one


def test_several_damaged_peers_do_not_keep_the_hub_from_being_asked(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    peers = []
    for number in range(4):
        folder = tmp_path / f"damaged{number}"
        assert fetched(hub, folder, "--from-peer", str(node0)).returncode == 0
        flip(folder / LARGEST, 5 + number % 2)  # two of them are wrong in the same way
        peers += ["--from-peer", str(folder)]
    done = fetched(hub, tmp_path / "b", *peers)
    assert (done.returncode, is_whole(hub, tmp_path / "b")) == (0, True)


def test_a_damaged_file_without_another_source_is_not_kept(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    flip(node0 / LARGEST, 1000)
    done = fetched(hub, tmp_path / "b", "--from-peer", str(node0), "--offline")
    assert done.returncode == 5
    assert done.stderr.endswith(
        f"error: no peer has {LARGEST} as its record says\n"
        f"   at: {node0}\n"
        "   do: name another --from-peer, leave out --offline so that the hub is asked, or leave "
        f"the file out with --exclude {LARGEST}\n"
    )
    assert not (tmp_path / "b" / LARGEST).exists()
    assert not list((tmp_path / "b").rglob("*.part"))
    assert read_manifest(tmp_path / "b") is None


def test_what_a_peer_lacks_comes_from_the_next(hub: HubServer, node0: Path, tmp_path: Path) -> None:
    (node0 / LARGEST).unlink()
    done = fetched(hub, tmp_path / "b", "--from-peer", str(node0), "--json")
    found = json.loads(done.stdout)["result"]
    assert (done.returncode, is_whole(hub, tmp_path / "b")) == (0, True)
    sizes = {path: len(content) for path, content in hub.files.items()}
    assert {use["source"]: use["num_bytes"] for use in found["sources"]} == {
        hub.url: sizes[LARGEST],
        str(node0): sum(sizes.values()) - sizes[LARGEST],
    }
    assert found["proven_against"] == {"kind": "hub", "source": hub.url, "reason": ""}


def test_a_folder_without_a_record_helps_where_the_hub_says_the_digests(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    for path, content in hub.files.items():
        (plain / path).parent.mkdir(parents=True, exist_ok=True)
        (plain / path).write_bytes(content)
    done = fetched(hub, tmp_path / "b", "--from-peer", str(plain))
    assert (done.returncode, is_whole(hub, tmp_path / "b"), hub.num_bytes()) == (0, True, 0)
    assert fetched(hub, tmp_path / "c", "--from-peer", str(plain), "--offline").returncode == 3


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (("--offline",), 2, "without the hub and without a peer there is nothing to fetch from"),
        (("--from-peer", "TARGET"), 2, "a folder cannot be its own peer"),
        (("--from-peer", "/nonexistent", "--offline"), 3, "/nonexistent is not used: is no folder"),
        (("--from-peer", "NODE0", "--revision", "v2", "--offline"), 3, "it holds main at 0123456"),
    ],
)
def test_what_cannot_be_is_refused(
    hub: HubServer,
    node0: Path,
    tmp_path: Path,
    options: tuple[str, ...],
    exit_code: int,
    message: str,
) -> None:
    names = {"TARGET": str(tmp_path / "b"), "NODE0": str(node0)}
    done = fetched(hub, tmp_path / "b", *[names.get(option, option) for option in options])
    assert (done.returncode, message in done.stderr) == (exit_code, True), done.stderr


def test_a_record_that_leads_out_of_the_folder_is_refused(
    hub: HubServer, node0: Path, tmp_path: Path
) -> None:
    for name in (".k31ctl/snapshot.json", "k31ctl-manifest.json"):
        text = (node0 / name).read_text()
        (node0 / name).write_text(text.replace('"LICENSE"', '"../LICENSE"'))
    done = fetched(hub, tmp_path / "b", "--from-peer", str(node0), "--offline")
    assert done.returncode == 3
    assert "error: the record has a file with an unsafe path: '../LICENSE'" in done.stderr
    assert not (tmp_path / "LICENSE").exists()


def test_a_copy_goes_on_where_it_was_stopped(hub: HubServer, node0: Path, tmp_path: Path) -> None:
    def cut(answer: Answer) -> None:
        if answer.path == LARGEST:
            answer.cut_after = 2**20

    hub.fault = cut
    with serving(node0) as peer:
        assert fetched(hub, tmp_path / "b", "--retries", "0").returncode == 6
        assert list((tmp_path / "b").rglob("*.part"))
        done = fetched(hub, tmp_path / "b", "--from-peer", peer.url, "--json")
    found = json.loads(done.stdout)["result"]
    assert (done.returncode, is_whole(hub, tmp_path / "b")) == (0, True)
    assert found["bytes_reused"] >= 2**20
    sources = {f.path: f.sources for f in manifest_in(tmp_path / "b").files}[LARGEST]
    assert sources == (hub.url, peer.url)
