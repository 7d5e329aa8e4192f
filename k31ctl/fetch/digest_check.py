"""What the files of a folder should be, by the records beside them, and what they are.

Two records are read: the manifest that fetch writes, and what the hub's own client leaves under
``.cache/huggingface/download``: one ``.metadata`` file each, whose second line is the SHA-256 of a
large file or git's blob id of a small one.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from k31ctl.errors import InputError
from k31ctl.fetch.digest_text import SHA1_LENGTH, SHA256_LENGTH, blob_hasher, is_digest
from k31ctl.fetch.findings import Finding, Level
from k31ctl.fetch.manifest import MANIFEST_NAME
from k31ctl.fetch.marks import BLOCK_BYTES, MarkedSha256, note_marks, noted_marks
from k31ctl.fetch.proven import ProvenFiles, Stamp, stamp_of
from k31ctl.fetch.safe_path import is_safe
from k31ctl.fetch.watch import Watch
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular
from k31ctl.values import frozen

_HUB_RECORDS: Final = Path(".cache/huggingface/download")
_MAX_RECORD_BYTES: Final = 64 * 2**20
_PIECE_BYTES: Final = 1 << 20


@frozen
class Expected:
    """A file as its record has it: SHA-256, or git's blob id where the digest is 40 digits.

    Without a digest its contents cannot be proven.
    """

    path: str
    size_bytes: int | None
    digest: str | None

    @property
    def has_sha256(self) -> bool:
        """Whether the digest is the one that a file can be fetched by."""
        return self.digest is not None and len(self.digest) == SHA256_LENGTH


@frozen
class DigestCheck:
    """What came of holding the files against their record."""

    num_files: int
    num_hashed: int
    num_reused: int
    hashed_bytes: int
    findings: tuple[Finding, ...]


NO_DIGESTS: Final = DigestCheck(
    num_files=0, num_hashed=0, num_reused=0, hashed_bytes=0, findings=()
)


def expected_files(folder: Path, manifest: Path | None) -> tuple[str, tuple[Expected, ...]]:
    """The name of the record and the files in it; an empty record where there is none.

    Raises InputError for a record that cannot be read.
    """
    chosen = manifest or folder / MANIFEST_NAME
    if manifest is not None or chosen.exists():
        return str(chosen), tuple(_from_manifest(chosen))
    found = tuple(_from_hub(folder))
    return (str(folder / _HUB_RECORDS) if found else ""), found


def _from_manifest(path: Path) -> Iterator[Expected]:
    try:
        document: Any = parsed(read_regular(path, most_bytes=_MAX_RECORD_BYTES))
        for entry in document["files"]:
            digest = entry.get("sha256") or entry.get("blob_id") or None
            yield _expected(entry["path"], entry["size_bytes"], digest)
    except OSError as error:
        raise _bad(f"the manifest cannot be read: {(error.strerror or '').lower()}", path) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _bad("the manifest is not one that this version can read", path) from None


def _bad(what: str, path: Path) -> InputError:
    remedy = "name the manifest of the release with --manifest, or fetch it again"
    return InputError(what, where=str(path), remedy=remedy)


def _expected(path: object, size_bytes: object, digest: object) -> Expected:
    """One entry of a record; raises ValueError for what leads out of the folder or is no digest."""
    if not isinstance(path, str) or not is_safe(path):
        raise ValueError(path)
    if digest is not None and not is_digest(digest):
        raise ValueError(digest)
    if size_bytes is not None and (type(size_bytes) is not int or size_bytes < 0):
        raise ValueError(size_bytes)
    return Expected(path=path, size_bytes=size_bytes, digest=digest)  # type: ignore[arg-type]


def _from_hub(folder: Path) -> Iterator[Expected]:
    records = folder / _HUB_RECORDS
    for path in sorted(records.rglob("*.metadata")):
        lines = _text(path).splitlines()
        digest = lines[1].strip() if len(lines) > 1 else ""
        name = path.relative_to(records).as_posix().removesuffix(".metadata")
        yield Expected(path=name, size_bytes=None, digest=digest if is_digest(digest) else None)


def _text(path: Path) -> str:
    try:
        return read_regular(path, most_bytes=_MAX_RECORD_BYTES).decode(errors="replace")
    except OSError:
        return ""


def check_files(
    folder: Path,
    expected: Sequence[Expected],
    *,
    proven: ProvenFiles,
    num_jobs: int,
    only_sizes: bool,
    watch: Watch,
    record_name: str = MANIFEST_NAME,
) -> DigestCheck:
    """Hold sizes, and unless told otherwise digests, against the record; large files first.

    A record that names no file, and a file without a digest in it, prove nothing: both are found.
    """
    findings: list[Finding] = []
    if not expected:
        text = "names no file: the record is damaged"
        findings.append(Finding(level=Level.SIZES, file=record_name, problem=text))
    to_hash: list[tuple[Expected, Stamp]] = []
    num_reused = 0
    for file in expected:
        stamp = stamp_of(folder / file.path)
        if isinstance(stamp, str):
            findings.append(_finding(file, Level.SIZES, stamp))
        elif file.size_bytes is not None and stamp.size_bytes != file.size_bytes:
            text = f"has {stamp.size_bytes:,} bytes instead of {file.size_bytes:,}"
            findings.append(_finding(file, Level.SIZES, text))
        elif only_sizes:
            continue
        elif file.digest is None:
            findings.append(_finding(file, Level.DIGESTS, "has no digest in the record"))
        elif proven.knows(file.path, stamp, file.digest):
            num_reused += 1
        else:
            to_hash.append((file, stamp))
    to_hash.sort(key=lambda pair: -pair[1].size_bytes)
    num_bytes = sum(stamp.size_bytes for _, stamp in to_hash)
    if num_bytes:
        watch.begin("digests", num_bytes)
    findings += _hash_all(folder, to_hash, proven=proven, num_jobs=num_jobs, on_bytes=watch.advance)
    return DigestCheck(
        num_files=len(expected),
        num_hashed=len(to_hash),
        num_reused=num_reused,
        hashed_bytes=num_bytes,
        findings=tuple(sorted(findings, key=lambda f: (f.file, f.problem))),
    )


def _hash_all(
    folder: Path,
    files: Sequence[tuple[Expected, Stamp]],
    *,
    proven: ProvenFiles,
    num_jobs: int,
    on_bytes: Callable[[int], None],
) -> Iterator[Finding]:
    """Digest files by threads: hashing leaves Python's lock, so they run side by side."""
    pool = ThreadPoolExecutor(max_workers=max(1, num_jobs))
    try:
        running = {
            pool.submit(marked_digest_of, folder / file.path, file.digest or "", on_bytes): (
                file,
                stamp,
            )
            for file, stamp in files
        }
        for done in as_completed(running):
            file, stamp = running[done]
            try:
                digest, marks = done.result()
            except OSError as error:
                yield _finding(file, Level.DIGESTS, f"cannot be read: {error.strerror}")
                continue
            if stamp_of(folder / file.path) != stamp:
                yield _finding(file, Level.DIGESTS, "changed while it was read")
            elif digest != file.digest:
                told = f"has the digest {digest[:16]}.. instead of {(file.digest or '')[:16]}.."
                start = _first_wrong(marks, noted_marks(folder, file.path, file.digest or ""))
                yield _finding(file, Level.DIGESTS, told, start=start, end=stamp.size_bytes)
            else:
                proven.add(file.path, stamp, digest)
                note_marks(folder, file.path, digest, marks)
    finally:
        pool.shutdown(cancel_futures=True)


def digest_of(path: Path, like: str, on_bytes: Callable[[int], None] = lambda _: None) -> str:
    """The digest of a file: git's blob id where ``like`` has 40 digits, SHA-256 otherwise."""
    return marked_digest_of(path, like, on_bytes)[0]


def marked_digest_of(
    path: Path, like: str, on_bytes: Callable[[int], None] = lambda _: None
) -> tuple[str, Sequence[str]]:
    """The digest of a file, and how its SHA-256 stood at every block."""
    with path.open("rb", buffering=0) as stream:
        marked = MarkedSha256()
        hasher: Any = marked
        if len(like) == SHA1_LENGTH:
            size = os.fstat(stream.fileno()).st_size
            hasher = blob_hasher(size)
        buffer = memoryview(bytearray(_PIECE_BYTES))
        while count := stream.readinto(buffer):
            hasher.update(buffer[:count])
            on_bytes(count)
    return hasher.hexdigest(), marked.marks


def extra_files(folder: Path, expected: Sequence[Expected]) -> list[Finding]:
    """Weight files that the record does not name: a loader that takes every file reads them."""
    known = {file.path for file in expected}
    return [
        Finding(level=Level.SIZES, file=path.name, problem="is not in the record of this folder")
        for path in sorted(folder.glob("*.safetensors"))
        if path.name not in known
    ]


def _first_wrong(marks: Sequence[str], noted: Sequence[str]) -> int:
    """The first byte of the first block that is not as it was when the file was right."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(marks, noted, strict=False))
    return sum(1 for _ in same) * BLOCK_BYTES


def _finding(
    file: Expected,
    level: Level,
    problem: str,
    *,
    start: int | None = None,
    end: int | None = None,
) -> Finding:
    return Finding(level=level, file=file.path, problem=problem, start=start, end=end)
