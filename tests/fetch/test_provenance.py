"""The record beside the weights: enough to answer for them later, and proof that it is whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from k31ctl.catalog import Store, default_folders
from k31ctl.fetch.findings import Level
from k31ctl.fetch.manifest import MANIFEST_NAME, Manifest, read_manifest
from k31ctl.fetch.verify import Verification, Wanted, verify_checkpoint
from tests.fetch.conftest import Fetch
from tests.fetch.hub_server import HubServer


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / MANIFEST_NAME).read_text())
    return found


def manifest_in(folder: Path) -> Manifest:
    found = read_manifest(folder)
    assert found is not None
    return found


def verified(folder: Path, manifest: Path | None = None) -> Verification:
    wanted = Wanted(deepest=Level.DIGESTS, manifest=manifest)
    return verify_checkpoint(Store(default_folders()), folder, wanted)


def test_the_licence_s_text_is_in_the_record_under_its_digest(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    assert fetch("--accepted-by", "Jo").returncode == 0
    (text,) = record(tmp_path / "w")["licence_texts"]
    assert text == {"path": "LICENSE", "sha256": hub.sha256("LICENSE"), "text": "you may"}


def test_a_licence_that_is_no_text_keeps_its_digest_alone(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.files["LICENSE"] = b"\xff\xfe"
    assert fetch().returncode == 0
    (text,) = record(tmp_path / "w")["licence_texts"]
    assert text == {"path": "LICENSE", "sha256": hub.sha256("LICENSE"), "text": None}
    assert verified(tmp_path / "w").is_proven


def test_who_accepted_stays_recorded_when_a_later_run_does_not_say_it(
    fetch: Fetch, tmp_path: Path
) -> None:
    assert fetch("--accepted-by", "Jo").returncode == 0
    first = manifest_in(tmp_path / "w")
    assert fetch().returncode == 0
    again = manifest_in(tmp_path / "w")
    assert (again.accepted_by, again.accepted_at) == ("Jo", first.accepted_at)
    assert fetch("--accepted-by", "Legal").returncode == 0
    assert manifest_in(tmp_path / "w").accepted_by == "Legal"


def test_every_file_s_source_is_recorded_and_stays_so(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    for _ in range(2):
        assert fetch().returncode == 0
        sources = {file.path: file.sources for file in manifest_in(tmp_path / "w").files}
        assert sources.pop("sub/empty.bin") == ()
        assert set(sources.values()) == {(hub.url,)}


def test_a_record_of_the_first_version_is_still_read_and_proven(
    fetch: Fetch, tmp_path: Path
) -> None:
    assert fetch("--accepted-by", "Jo").returncode == 0
    old = record(tmp_path / "w")
    for name in ("accepted_at", "licence_texts", "proven_against"):
        del old[name]
    for file in old["files"]:
        del file["blob_id"], file["sources"]
    (tmp_path / "w" / MANIFEST_NAME).write_text(json.dumps(old))
    assert manifest_in(tmp_path / "w").accepted_by == "Jo"
    assert verified(tmp_path / "w").is_proven


def test_a_record_kept_elsewhere_proves_the_folder_and_shows_its_origin(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    assert fetch("--accepted-by", "Jo").returncode == 0
    kept = (tmp_path / "w" / MANIFEST_NAME).rename(tmp_path / "kept.json")
    found = verified(tmp_path / "w", kept)
    assert found.is_proven
    assert found.manifest is not None
    assert (found.manifest.repo, found.manifest.accepted_by) == (hub.repo, "Jo")
    (tmp_path / "w" / "LICENSE").write_bytes(b"you MAY")
    assert [f.file for f in verified(tmp_path / "w", kept).findings] == ["LICENSE"]


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("text", "you may not", "has another text in the record than the one that its digest is"),
        ("sha256", "0" * 64, "has two digests in the record"),
    ],
)
def test_a_licence_changed_in_the_record_is_noticed(
    fetch: Fetch, tmp_path: Path, key: str, value: str, problem: str
) -> None:
    assert fetch().returncode == 0
    changed = record(tmp_path / "w")
    changed["licence_texts"][0][key] = value
    (tmp_path / "w" / MANIFEST_NAME).write_text(json.dumps(changed))
    assert any(f.problem.startswith(problem) for f in verified(tmp_path / "w").findings)
