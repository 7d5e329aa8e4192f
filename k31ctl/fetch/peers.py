"""Other places that hold the files: a folder on this machine, or what a URL serves."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

from k31ctl.errors import InputError, K31Error
from k31ctl.fetch.hub import Hub, HubFile
from k31ctl.fetch.listing import Listing, read_listing
from k31ctl.fetch.origins import Readable
from k31ctl.fetch.trouble import TransferError, broken

_STALL_S: Final = 20.0


class Peer(Protocol):
    """A place that may hold files of a commit; nothing it says is taken without proof."""

    @property
    def label(self) -> str:
        """What the user calls it."""

    def listing(self, repo: str, revision: str) -> Listing | None:
        """What it says it holds, None where it says nothing.

        Raises TransferError where it cannot be reached, InputError where it holds another
        repository or revision.
        """

    def holds(self, file: HubFile) -> bool:
        """Whether it has a file that may be this one."""

    def open_range(self, file: HubFile, start: int, end: int) -> AbstractContextManager[Readable]:
        """Ask once for a range of a file; raises TransferError."""

    def stop(self) -> None:
        """Cut every connection."""


class FolderPeer:
    """A folder that this machine can read: local, or mounted from elsewhere."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.label = str(folder)
        self._known: dict[str, HubFile] = {}

    def listing(self, repo: str, revision: str) -> Listing | None:
        """What its record says; None where it has none, as a folder of the hub's own client."""
        if not self._folder.is_dir():
            raise TransferError("is no folder here", final=_no_folder(self.label))
        found = read_listing(self._folder)
        if found is not None:
            require_same(found, repo, revision, where=self.label)
            self._known = {file.path: file for file in found.snapshot.files}
        return found

    def holds(self, file: HubFile) -> bool:
        """Whether it has a file of this size that its record does not call another."""
        known = self._known.get(file.path)
        if known is not None and is_another(known, file):
            return False
        path = self._folder / file.path
        try:
            return path.is_file() and path.stat().st_size == file.size_bytes
        except OSError:
            return False

    @contextmanager
    def open_range(self, file: HubFile, start: int, end: int) -> Iterator[Readable]:
        """Read a range of a file; raises TransferError where the folder does not give it."""
        try:
            stream = (self._folder / file.path).open("rb", buffering=0)
        except OSError as error:
            raise _unreadable(error, f"{self.label}/{file.path}") from None
        with stream:
            stream.seek(start)
            os.posix_fadvise(stream.fileno(), start, end - start, os.POSIX_FADV_SEQUENTIAL)
            yield _FileRange(stream.fileno(), start, end, where=f"{self.label}/{file.path}")

    def stop(self) -> None:
        """Do nothing: a read of a file is not waited for."""


class _FileRange:
    """A range of an open file."""

    def __init__(self, handle: int, start: int, end: int, *, where: str) -> None:
        self._handle, self._position, self._end, self._where = handle, start, end, where

    def readinto(self, view: memoryview) -> int:
        """Fill memory; returns the number of bytes, 0 at the end of the range."""
        wanted = min(len(view), self._end - self._position)
        if wanted <= 0:
            return 0
        try:
            count = os.preadv(self._handle, [view[:wanted]], self._position)
        except OSError as error:
            raise _unreadable(error, self._where) from None
        if count == 0:
            raise broken("the file ends early", where=self._where)
        self._position += count
        return count


class UrlPeer:
    """What speaks the hub's protocol at another address, as ``fetch --serve`` does."""

    def __init__(self, url: str, *, token: str | None, stall_s: float = _STALL_S) -> None:
        self.label = url.rstrip("/")
        self._hub = Hub(
            endpoints=[self.label], token=token, stall_s=stall_s, timeout_s=min(stall_s, 10.0)
        )
        self._listing: Listing | None = None
        self._known: dict[str, HubFile] = {}

    def listing(self, repo: str, revision: str) -> Listing | None:
        """What it answers: one request."""
        snapshot = self._hub.asked_once(repo, revision)
        self._listing = Listing(snapshot=snapshot, revision=revision, is_complete=True)
        self._known = {file.path: file for file in snapshot.files}
        return self._listing

    def holds(self, file: HubFile) -> bool:
        """Whether it lists a file of this size that it does not call another."""
        known = self._known.get(file.path)
        return (
            known is not None
            and known.size_bytes == file.size_bytes
            and not is_another(known, file)
        )

    @contextmanager
    def open_range(self, file: HubFile, start: int, end: int) -> Iterator[Readable]:
        """Ask once for a range of a file; raises TransferError."""
        assert self._listing is not None
        known = self._known[file.path]
        with self._hub.open_range(self._listing.snapshot, known, start, end) as body:
            yield body

    def stop(self) -> None:
        """Cut every connection."""
        self._hub.stop()


def is_another(known: HubFile, wanted: HubFile) -> bool:
    """Whether two descriptions of a file cannot be of the same bytes."""
    if known.sha256 and wanted.sha256:
        return known.sha256 != wanted.sha256
    if known.blob_id and wanted.blob_id:
        return known.blob_id != wanted.blob_id
    return known.size_bytes != wanted.size_bytes


def require_same(found: Listing, repo: str, revision: str, *, where: str) -> None:
    """Raise InputError where a record is of another repository or revision."""
    snapshot = found.snapshot
    if snapshot.repo.casefold() != repo.casefold():
        raise InputError(
            f"it holds {snapshot.repo}, not {repo}",
            where=where,
            remedy="name a peer that has this repository with --from-peer",
        )
    if revision not in (found.revision, snapshot.commit):
        raise InputError(
            f"it holds {found.revision} at {snapshot.commit[:12]}, not {revision[:80]!r}",
            where=where,
            remedy=f"name --revision {found.revision}, or another peer",
        )


def _no_folder(label: str) -> K31Error:
    return InputError(
        "there is no such folder",
        where=label,
        remedy="name a folder, or the URL of k31ctl fetch --serve, with --from-peer",
    )


def _unreadable(error: OSError, where: str) -> TransferError:
    return broken(f"the file cannot be read: {(error.strerror or 'failed').lower()}", where=where)
