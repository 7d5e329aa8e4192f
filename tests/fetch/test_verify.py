"""Faults put into real files, and the level that has to see each of them."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import k31ctl
from k31ctl.catalog import Store, default_folders
from k31ctl.core.finding import Severity
from k31ctl.errors import InputError, K31Error, NotProvenError
from k31ctl.fetch.digest_check import digest_of
from k31ctl.fetch.findings import Finding, Level
from k31ctl.fetch.proven import JOURNAL_NAME
from k31ctl.fetch.verify import Verification, Wanted, verify_checkpoint
from tests.fetch.tiny_checkpoint import INDEX, SHARDS, flip, place_of, write_manifest, write_tiny

STORE = Store(default_folders(()))
MANIFEST = "k31ctl-manifest.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny(tmp_path / "tiny")
    return tmp_path / "tiny"


def verified(folder: Path, deepest: Level = Level.STRUCTURE, **more: object) -> Verification:
    wanted = Wanted(deepest=deepest, num_jobs=1, **more)  # type: ignore[arg-type]
    return verify_checkpoint(STORE, folder, wanted)


def errors(found: Verification) -> list[Finding]:
    return [f for f in found.findings if f.severity is Severity.ERROR]


@pytest.mark.parametrize("deepest", list(Level))
def test_a_whole_checkpoint_is_proven_at_every_level(folder: Path, deepest: Level) -> None:
    found = verified(folder, deepest)
    assert found.findings == ()
    assert found.is_proven
    found.require_proven()


def test_a_flipped_bit_in_data_is_found_by_its_digest(folder: Path) -> None:
    flip(folder / SHARDS[1], (folder / SHARDS[1]).stat().st_size - 3)
    found = verified(folder)
    assert [(f.file, f.level) for f in found.findings] == [(SHARDS[1], Level.DIGESTS)]
    with pytest.raises(NotProvenError):
        found.require_proven()


def test_sizes_alone_do_not_read_contents(folder: Path) -> None:
    flip(folder / SHARDS[1], 1000)
    assert verified(folder, Level.SIZES).is_proven


def test_a_flipped_bit_in_a_small_file_is_found(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(path.read_text() + " ")
    assert [f.file for f in errors(verified(folder))] == ["config.json"]


def test_a_truncated_file_is_found_by_its_size_and_by_its_header(folder: Path) -> None:
    path = folder / SHARDS[2]
    os.truncate(path, path.stat().st_size - 1)
    found = {(f.level, f.file) for f in errors(verified(folder))}
    assert found == {(Level.SIZES, SHARDS[2]), (Level.STRUCTURE, SHARDS[2])}


def test_swapped_files_are_found(folder: Path) -> None:
    a, b, spare = folder / SHARDS[0], folder / SHARDS[1], folder / "spare"
    a.rename(spare), b.rename(a), spare.rename(b)
    found = errors(verified(folder))
    assert {f.file for f in found} >= set(SHARDS[:2])


def test_a_renamed_file_is_missed_and_its_new_name_is_too_many(folder: Path) -> None:
    (folder / SHARDS[0]).rename(folder / "other.safetensors")
    told = {(f.file, f.problem) for f in errors(verified(folder)) if f.level is Level.SIZES}
    assert told == {
        (SHARDS[0], "is missing"),
        ("other.safetensors", "is not in the record of this folder"),
    }


def test_without_a_record_a_repair_says_what_to_do_instead(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    whole = k31ctl.verify(folder, repair=True)
    assert (whole.is_proven, whole.repair) == (True, None)
    assert whole.warnings[-1].startswith("nothing was repaired: no record here says where")
    (folder / SHARDS[0]).write_bytes(b"cut")
    for asked in (False, True):
        with pytest.raises(NotProvenError) as caught:
            k31ctl.verify(folder, repair=asked).require_proven()
        assert caught.value.remedy.startswith(f"k31ctl fetch REPO --to {folder} ")


def test_a_missing_tensor_is_named_without_any_record(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    index = json.loads((folder / INDEX).read_text())
    gone = [name for name, file in index["weight_map"].items() if file == SHARDS[1]]
    (folder / SHARDS[1]).unlink()
    missing = {f.tensor for f in errors(verified(folder)) if f.tensor}
    assert missing == set(gone)


def test_a_second_run_reads_nothing_again(folder: Path) -> None:
    first = verified(folder)
    second = verified(folder)
    assert (first.digests.num_reused, second.digests.num_hashed) == (0, 0)
    assert second.digests.num_reused == first.digests.num_hashed == len(SHARDS) + 2


def test_a_file_that_was_written_since_is_read_again(folder: Path) -> None:
    verified(folder)
    flip(folder / SHARDS[0], -3)
    found = verified(folder)
    assert found.digests.num_hashed == 1
    assert [f.file for f in errors(found)] == [SHARDS[0]]


def test_again_forgets_what_was_proven(folder: Path) -> None:
    verified(folder)
    assert verified(folder, again=True).digests.num_reused == 0


def test_a_broken_journal_is_as_good_as_none(folder: Path) -> None:
    verified(folder)
    (folder / JOURNAL_NAME).write_text('{"schema": "k31ctl/verify-journal/v1", "files": [')
    assert verified(folder).digests.num_reused == 0


def test_only_the_journal_is_written(folder: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    verified(folder)
    after = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    assert after.pop(folder / JOURNAL_NAME)
    assert after.pop((folder / JOURNAL_NAME).parent)
    assert after == before


def test_a_folder_that_cannot_be_written_is_verified_without_a_journal(folder: Path) -> None:
    (folder / JOURNAL_NAME).mkdir(
        parents=True
    )  # what stands in the way of a journal, for root as well
    found = verified(folder)
    assert found.is_proven
    assert not found.journal_kept
    assert not list(folder.rglob("*.tmp"))


def test_records_of_the_hub_s_own_client_are_a_record(folder: Path) -> None:
    records = folder / ".cache" / "huggingface" / "download"
    records.mkdir(parents=True)
    for entry in json.loads((folder / MANIFEST).read_text())["files"]:
        (records / f"{entry['path']}.metadata").write_text(f"commit\n{entry['sha256']}\n1.0\n")
    (folder / MANIFEST).unlink()
    assert verified(folder).digests.num_hashed == len(SHARDS) + 2
    flip(folder / SHARDS[0], -3)
    assert [f.file for f in errors(verified(folder))] == [SHARDS[0]]


def test_a_blob_id_of_git_is_a_digest_too(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_bytes(b"what is up, doc?")
    # From the Git book, chapter Git Internals - Git Objects.
    blob_id = "bd9dbf5aae1a3862dd1526723246b20206e5fc37"
    assert digest_of(tmp_path / "note.txt", like=blob_id) == blob_id


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"files": [{"path": "../x", "size_bytes": 1, "sha256": null}]}', "[" * 10**5],
)
def test_a_manifest_that_is_none_is_refused(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    with pytest.raises(InputError, match="manifest"):
        verified(folder)


def test_an_unexpected_type_is_named_with_its_bytes(folder: Path) -> None:
    name = "language_model.model.norm.weight"
    index = json.loads((folder / INDEX).read_text())
    path = folder / index["weight_map"][name]
    raw = path.read_bytes()
    at = raw.index(b'"BF16"', raw.index(f'"{name}"'.encode()))
    path.write_bytes(raw[:at] + b'"F16" ' + raw[at + 6 :])
    write_manifest(folder)
    (found,) = errors(verified(folder))
    start, end = place_of(path, name)
    assert (found.tensor, found.start, found.end) == (name, start, end)
    assert found.problem == "is F16 [64] instead of BF16 [64]"


def change_record(folder: Path, **changes: object) -> None:
    """Change the entry of the second file of weights."""
    document = json.loads((folder / MANIFEST).read_text())
    (entry,) = (e for e in document["files"] if e["path"] == SHARDS[1])
    entry |= changes
    (folder / MANIFEST).write_text(json.dumps(document))


def test_a_file_without_a_digest_in_the_record_is_not_proven(folder: Path) -> None:
    change_record(folder, sha256=None)
    (found,) = errors(verified(folder))
    assert (found.file, found.level) == (SHARDS[1], Level.DIGESTS)
    assert found.problem == "has no digest in the record"
    assert verified(folder, Level.SIZES).is_proven


def test_a_blob_id_in_the_record_is_enough(folder: Path) -> None:
    raw = (folder / SHARDS[1]).read_bytes()
    blob_id = hashlib.sha1(b"blob %d\0" % len(raw) + raw, usedforsecurity=False).hexdigest()
    change_record(folder, sha256=None, blob_id=blob_id)
    assert verified(folder).findings == ()
    flip(folder / SHARDS[1], -3)
    assert [f.file for f in errors(verified(folder))] == [SHARDS[1]]


@pytest.mark.parametrize("deepest", [Level.SIZES, Level.STRUCTURE])
def test_a_record_of_no_files_proves_nothing_and_weights_are_told(
    folder: Path, deepest: Level
) -> None:
    document = json.loads((folder / MANIFEST).read_text()) | {"files": []}
    (folder / MANIFEST).write_text(json.dumps(document))
    told = {(f.file, f.problem) for f in errors(verified(folder, deepest))}
    assert told == {
        (MANIFEST, "names no file: the record is damaged"),
        *((name, "is not in the record of this folder") for name in SHARDS),
    }


@pytest.mark.parametrize("tag", ["commit\nnot-a-digest\n1.0\n", "commit\n", ""])
def test_a_hub_record_without_a_digest_is_not_proven(folder: Path, tag: str) -> None:
    records = folder / ".cache" / "huggingface" / "download"
    records.mkdir(parents=True)
    for entry in json.loads((folder / MANIFEST).read_text())["files"]:
        (records / f"{entry['path']}.metadata").write_text(f"commit\n{entry['sha256']}\n1.0\n")
    (records / f"{SHARDS[2]}.metadata").write_text(tag)
    (folder / MANIFEST).unlink()
    (found,) = errors(verified(folder))
    assert (found.file, found.problem) == (SHARDS[2], "has no digest in the record")


def warned(found: Verification) -> list[tuple[str, str]]:
    return [(f.file, f.problem) for f in found.findings if f.severity is Severity.WARNING]


def unmodel(folder: Path, how: str) -> None:
    """Take from a folder what tells its model, and record it so."""
    if how == "absent":
        (folder / "config.json").unlink()
    else:
        (folder / "config.json").write_text({"unnamed": "{}", "broken": "{"}[how])
    write_manifest(folder)


@pytest.mark.parametrize("how", ["absent", "unnamed", "broken"])
def test_without_a_known_model_everything_else_is_looked_at(folder: Path, how: str) -> None:
    unmodel(folder, how)
    found = verified(folder, Level.VALUES)
    assert found.is_proven
    ((file, problem),) = warned(found)
    assert file == "config.json"
    assert "structure not held against a model: " in problem
    assert found.structure is not None
    assert found.structure.inspection is None
    assert found.structure.num_tensors == found.num_values_tensors > 0


def test_without_a_known_model_damage_is_told_by_digest_header_and_index(folder: Path) -> None:
    unmodel(folder, "unnamed")
    flip(folder / SHARDS[1], -3)
    os.truncate(folder / SHARDS[2], (folder / SHARDS[2]).stat().st_size - 1)
    index = json.loads((folder / INDEX).read_text())
    index["weight_map"]["absent.weight"] = SHARDS[0]
    (folder / INDEX).write_text(json.dumps(index))
    found = {(f.level, f.file) for f in errors(verified(folder))}
    assert found == {
        (Level.DIGESTS, SHARDS[1]),
        (Level.SIZES, SHARDS[2]),
        (Level.STRUCTURE, SHARDS[2]),
        (Level.SIZES, INDEX),
        (Level.STRUCTURE, SHARDS[0]),
    }


def test_a_named_model_that_is_none_is_refused_before_anything_is_read(folder: Path) -> None:
    with pytest.raises(K31Error, match="no-such-model"):
        verified(folder, model_spec="no-such-model")
    assert not (folder / JOURNAL_NAME).exists()


def test_an_index_that_cannot_be_read_does_not_hide_other_damage(folder: Path) -> None:
    (folder / INDEX).write_text("{")
    flip(folder / SHARDS[0], -3)
    found = {(f.level, f.file) for f in errors(verified(folder))}
    assert found == {
        (Level.DIGESTS, SHARDS[0]),
        (Level.SIZES, INDEX),
        (Level.STRUCTURE, INDEX),
    }


def test_a_folder_of_small_files_alone_is_held_against_its_record(folder: Path) -> None:
    for name in (*SHARDS, INDEX):
        (folder / name).unlink()
    write_manifest(folder)
    found = verified(folder)
    assert (found.is_proven, len(warned(found))) == (True, 1)
    (folder / MANIFEST).unlink()
    with pytest.raises(InputError, match="no safetensors file"):
        verified(folder)


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_flipped_bit_anywhere_is_found(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.getbasetemp() / "flipped"
    if not folder.exists():
        write_tiny(folder)
    path = folder / data.draw(st.sampled_from([*SHARDS, INDEX, "config.json"]))
    position = data.draw(st.integers(0, path.stat().st_size - 1))
    bit = data.draw(st.integers(0, 7))
    flip(path, position, bit)
    try:
        assert path.name in {f.file for f in errors(verified(folder))}
    finally:
        flip(path, position, bit)
