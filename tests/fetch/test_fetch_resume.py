"""What a later run builds upon: after a reboot, after other content, after other holders of a lock.

A reboot shows in what lies on the disk: the journal's boot is not this one, and what the disk had
not confirmed may be gone. So the tests change the first and destroy the second.
"""

import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.errors import RefusedError
from k31ctl.fetch.events import FileStarted, Finished, Mismatched, Planned, Waiting
from k31ctl.fetch.manifest import read_manifest
from k31ctl.fetch.seal import sealed, unsealed
from tests.fetch.conftest import is_whole
from tests.fetch.direct import Download
from tests.fetch.hub_server import HubServer

BIG = "big.safetensors"
MIB = 2**20


def content(seed: int, num_bytes: int = 8 * MIB) -> bytes:
    return random.Random(seed).randbytes(num_bytes)


def stopped_midway(hub: HubServer, folder: Path, *, sync: bool = True) -> Path:
    """Fetch more than three MiB on one connection and stop; returns the folder of parts."""
    hub.fault = lambda answer: setattr(answer, "rate", 8e6)
    begun = hub.num_bytes()
    download = Download(hub, folder, connections=1, sync=sync)
    while hub.num_bytes() - begun < 4 * MIB:
        next(download.steps)
    download.steps.close()
    hub.fault = lambda _: None
    return folder / ".k31ctl" / "parts"


def changed(path: Path, **fields: Any) -> dict[str, Any]:
    """Write a state with other fields, in place and as long as before; returns it as it was."""
    before: dict[str, Any] = json.loads(path.read_text())
    path.write_text(json.dumps(before | fields).ljust(255) + "\n")
    return before


def test_after_a_reboot_only_what_the_disk_confirmed_is_built_upon(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.files = {BIG: content(1)}
    parts = stopped_midway(hub, tmp_path / "w")
    (state,), (part,) = parts.glob("*.json"), parts.glob("*.part")
    assert changed(state, synced=2 * MIB, boot_id="an earlier boot")["written"] > 2 * MIB
    with part.open("r+b") as file:
        file.seek(2 * MIB)
        file.write(bytes(part.stat().st_size - 2 * MIB))
    finished = Download(hub, tmp_path / "w").finish()
    assert (finished.bytes_reused, finished.bytes_downloaded) == (2 * MIB, 6 * MIB)
    assert finished.num_refetched == 0
    assert is_whole(hub, tmp_path / "w")


def test_without_a_reboot_what_the_disk_has_not_confirmed_counts(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.files = {BIG: content(1)}
    parts = stopped_midway(hub, tmp_path / "w", sync=False)
    (state,) = parts.glob("*.json")
    found = json.loads(state.read_text())
    assert found["synced"] == 0
    finished = Download(hub, tmp_path / "w").finish()
    assert finished.bytes_reused == found["written"] > 2 * MIB
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize("sync", [True, False])
def test_after_a_reboot_files_are_read_again_where_the_disk_was_not_asked(
    hub: HubServer, tmp_path: Path, sync: bool
) -> None:
    Download(hub, tmp_path / "w", sync=sync).finish()
    path = tmp_path / "w" / ".k31ctl" / "journal.json"
    journal = json.loads(path.read_text())
    for proof in journal["files"].values():
        proof["boot_id"] = "an earlier boot"
    path.write_text(json.dumps(journal))
    again = Download(hub, tmp_path / "w")
    assert again.finish().bytes_downloaded == 0
    checked = {event.path for event in again.of(FileStarted)}
    assert checked == (set() if sync else set(hub.files))


@pytest.mark.parametrize("left", [b"", b"{", b"[]", b'{"written": "x"}', b"\xff\xfe", b"[" * 9999])
def test_a_state_that_cannot_be_read_is_as_good_as_none(
    hub: HubServer, tmp_path: Path, left: bytes
) -> None:
    hub.files = {BIG: content(1)}
    (state,) = stopped_midway(hub, tmp_path / "w").glob("*.json")
    for path in (state, tmp_path / "w" / ".k31ctl" / "journal.json"):
        path.write_bytes(left)
    assert Download(hub, tmp_path / "w").finish().bytes_reused == 0
    assert is_whole(hub, tmp_path / "w")


def test_a_part_whose_bytes_rotted_is_noticed_and_fetched_anew(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.files = {BIG: content(1)}
    (part,) = stopped_midway(hub, tmp_path / "w").glob("*.part")
    with part.open("r+b") as file:
        file.seek(MIB)
        file.write(b"rotten")
    assert Download(hub, tmp_path / "w").finish().num_refetched == 1
    assert is_whole(hub, tmp_path / "w")


def test_a_part_of_other_content_is_never_built_upon(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {BIG: content(1)}
    parts = stopped_midway(hub, tmp_path / "w")
    hub.files, hub.commit = {BIG: content(2)}, "f" * 40
    download = Download(hub, tmp_path / "w")
    download.until(Planned)
    assert not list(parts.iterdir())
    assert download.finish().bytes_reused == 0
    assert is_whole(hub, tmp_path / "w")


def test_a_revision_that_moved_on_replaces_what_changed_alone(
    hub: HubServer, tmp_path: Path
) -> None:
    Download(hub, tmp_path / "w").finish()
    changing = "model-00002-of-00002.safetensors"
    hub.files[changing] = content(3, len(hub.files[changing]))
    hub.commit = "f" * 40
    again = Download(hub, tmp_path / "w")
    assert again.finish().bytes_downloaded == len(hub.files[changing])
    assert [event.path for event in again.of(Mismatched)] == [changing]
    record = read_manifest(tmp_path / "w")
    assert record is not None
    assert record.commit == "f" * 40
    assert is_whole(hub, tmp_path / "w")


def held_by(folder: Path, *, silent_s: float, **fields: object) -> Path:
    """Write a lock as another machine would, last touched some seconds ago."""
    path = folder / ".k31ctl" / "lock"
    path.parent.mkdir(parents=True)
    owner = {"nonce": "0", "pid": 7, "host": "node-a", "boot_id": "theirs", "started": "1"}
    path.write_text(json.dumps(owner | fields))
    touched = time.time() - silent_s
    os.utime(path, (touched, touched))
    return path


def test_a_lock_of_another_machine_is_respected(hub: HubServer, tmp_path: Path) -> None:
    held_by(tmp_path / "w", silent_s=2)
    with pytest.raises(RefusedError, match="process 7 on node-a is fetching into this folder"):
        Download(hub, tmp_path / "w", wait=False).finish()
    assert hub.num_bytes() == 0


def test_a_lock_that_another_machine_died_with_is_taken_at_once(
    hub: HubServer, tmp_path: Path
) -> None:
    held_by(tmp_path / "w", silent_s=90)
    Download(hub, tmp_path / "w", wait=False).finish()
    assert is_whole(hub, tmp_path / "w")


def test_a_lock_that_is_given_back_elsewhere_lets_us_go_on(hub: HubServer, tmp_path: Path) -> None:
    path = held_by(tmp_path / "w", silent_s=2)
    download = Download(hub, tmp_path / "w")
    download.until(Waiting)
    path.write_bytes(b"")
    download.finish()
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize("left", [b"", b"{", b"\0" * 64, b"[1]"])
def test_a_lock_of_which_no_holder_can_be_read_is_taken(
    hub: HubServer, tmp_path: Path, left: bytes
) -> None:
    held_by(tmp_path / "w", silent_s=0).write_bytes(left)
    Download(hub, tmp_path / "w", wait=False).finish()


def test_of_three_at_once_one_fetches_and_the_others_find_all_proven(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.fault = lambda answer: setattr(answer, "rate", 6e6)
    first = Download(hub, tmp_path / "w")
    first.until(Planned)
    others = [Download(hub, tmp_path / "w") for _ in range(2)]
    threads = [threading.Thread(target=other.finish) for other in others]
    for thread in threads:
        thread.start()
    while not all(other.of(Waiting) for other in others):
        first.events.append(next(first.steps))
    first.finish()
    for thread in threads:
        thread.join()
    ended = [other.of(Finished)[0] for other in others]
    assert all(isinstance(e, Finished) and e.is_proven and not e.bytes_downloaded for e in ended)
    assert hub.num_bytes() == sum(map(len, hub.files.values()))
    assert is_whole(hub, tmp_path / "w")


def test_what_lies_behind_a_part_is_cut_off(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {BIG: content(8)}
    parts = stopped_midway(hub, tmp_path / "w")
    (part,) = parts.glob("*.part")
    with part.open("ab") as stream:
        stream.write(b"x" * 20 * MIB)
    assert Download(hub, tmp_path / "w").finish().is_proven
    assert is_whole(hub, tmp_path / "w")


def test_a_proof_of_another_length_counts_for_nothing(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {BIG: content(9, MIB)}
    Download(hub, tmp_path / "w").finish()
    file, journal = tmp_path / "w" / BIG, tmp_path / "w" / ".k31ctl" / "journal.json"
    with file.open("ab") as stream:
        stream.write(b"x")
    state = json.loads(journal.read_bytes())
    claims = unsealed(BIG, state["files"][BIG])
    assert claims is not None
    longer = {"size_bytes": MIB + 1, "mtime_ns": file.stat().st_mtime_ns}
    state["files"][BIG] = sealed(BIG, claims | longer)
    journal.write_text(json.dumps(state))
    assert Download(hub, tmp_path / "w").finish().is_proven
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize("path", ["config.json", "model-00001-of-00002.safetensors"])
@pytest.mark.parametrize("value", ["0" * 64, "0" * 63, 5, None, ["a"], {}], ids=str)
def test_a_digest_that_was_changed_in_the_journal_is_no_proof(
    hub: HubServer, tmp_path: Path, path: str, value: object
) -> None:
    Download(hub, tmp_path / "w").finish()
    journal = tmp_path / "w" / ".k31ctl" / "journal.json"
    state = json.loads(journal.read_bytes())
    state["files"][path]["sha256"] = value
    journal.write_text(json.dumps(state))
    hub.forget()
    assert Download(hub, tmp_path / "w").finish_checks() == [path]
    assert hub.num_bytes() == 0
    record = read_manifest(tmp_path / "w")
    assert record is not None
    assert {file.path: file.sha256 for file in record.files}[path] == hub.sha256(path)
    assert not Download(hub, tmp_path / "w").finish_checks()


def test_a_sealed_proof_that_contradicts_what_is_published_is_none(
    hub: HubServer, tmp_path: Path
) -> None:
    hub.files = {BIG: content(9, MIB)}
    Download(hub, tmp_path / "w").finish()
    journal = tmp_path / "w" / ".k31ctl" / "journal.json"
    state = json.loads(journal.read_bytes())
    claims = unsealed(BIG, state["files"][BIG])
    assert claims is not None
    state["files"][BIG] = sealed(BIG, claims | {"sha256": "0" * 64})
    journal.write_text(json.dumps(state))
    assert Download(hub, tmp_path / "w").finish_checks() == [BIG]
    record = read_manifest(tmp_path / "w")
    assert record is not None
    assert record.files[0].sha256 == hub.sha256(BIG)


@given(position=st.integers(0, 10**6), bit=st.integers(0, 7))
@settings(max_examples=300, deadline=None)
def test_no_bit_of_a_sealed_entry_can_turn_unseen(position: int, bit: int) -> None:
    entry = {"content_id": "ab", "sha256": "0" * 64, "size_bytes": 7, "mtime_ns": 9, "synced": True}
    text = bytearray(json.dumps(sealed("a.bin", entry)).encode())
    text[position % len(text)] ^= 1 << bit
    try:
        changed_entry = json.loads(text)
    except ValueError:
        return
    assert unsealed("a.bin", changed_entry) in (None, entry)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("journal.json", '{"rate_bytes_per_s": "fast", "repo": 5}'),
        ("journal.json", '{"rate_bytes_per_s": -1}'),
        ("origins.json", "[" * 200_000),
    ],
)
def test_a_damaged_state_is_as_good_as_none(
    hub: HubServer, tmp_path: Path, name: str, text: str
) -> None:
    Download(hub, tmp_path / "w").finish()
    (tmp_path / "w" / ".k31ctl" / name).write_text(text)
    assert Download(hub, tmp_path / "w").finish().is_proven


def test_what_a_killed_write_of_our_own_has_left_is_removed(hub: HubServer, tmp_path: Path) -> None:
    Download(hub, tmp_path / "w").finish()
    state = tmp_path / "w" / ".k31ctl"
    names = ["journal.json", "origins.json", "snapshot.json", "marks/0.json"]
    left = [state / f"{name}.1.tmp" for name in names]
    left.append(tmp_path / "w" / "k31ctl-manifest.json.1.tmp")
    for path in left:
        path.parent.mkdir(exist_ok=True)
        path.write_text("{")
    Download(hub, tmp_path / "w").finish()
    assert not any(path.exists() for path in left)
    assert is_whole(hub, tmp_path / "w")
