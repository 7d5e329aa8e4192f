"""A prefix in object storage as a peer: what an upload of ours, or anybody's, has left there."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from k31ctl.errors import K31Error
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.listing import Listing, listing_of
from k31ctl.fetch.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, manifest_from
from k31ctl.fetch.object_store import ObjectStore, StoredFile
from k31ctl.fetch.origins import Readable
from k31ctl.fetch.peers import is_another, require_same
from k31ctl.fetch.trouble import TransferError, broken

_STEP_BYTES: Final = 8 * 1024 * 1024


class StorePeer:
    """A source in object storage."""

    def __init__(self, url: str) -> None:
        self.label = url.rstrip("/")
        self._store = ObjectStore(url)
        self._known: dict[str, HubFile] = {}
        self._stats: dict[str, StoredFile | None] = {}

    def listing(self, repo: str, revision: str) -> Listing | None:
        """What the record there says; None without one."""
        try:
            content = self._store.read_small(MANIFEST_NAME, most_bytes=MAX_MANIFEST_BYTES)
        except K31Error as error:
            raise TransferError(error.what, final=error) from None
        if content is None:
            return None
        found = listing_of(manifest_from(content, where=f"{self.label}/{MANIFEST_NAME}"))
        require_same(found, repo, revision, where=self.label)
        self._known = {file.path: file for file in found.snapshot.files}
        return found

    def holds(self, file: HubFile) -> bool:
        """Whether there is a file of this size that the record does not call another."""
        known = self._known.get(file.path)
        if known is not None and is_another(known, file):
            return False
        if file.path not in self._stats:
            try:
                self._stats[file.path] = self._store.stat(file.path)
            except K31Error:
                return False
        found = self._stats[file.path]
        return found is not None and found.size_bytes == file.size_bytes

    @contextmanager
    def open_range(self, file: HubFile, start: int, end: int) -> Iterator[Readable]:
        """Read a range in steps; raises TransferError."""
        yield _StoreRange(self._store, file.path, start, end)

    def stop(self) -> None:
        """Do nothing: a step that is under way is not waited for."""


class _StoreRange:
    """A range of a stored file, asked for in steps."""

    def __init__(self, store: ObjectStore, path: str, start: int, end: int) -> None:
        self._store, self._path, self._position, self._end = store, path, start, end
        self._step = memoryview(b"")

    def readinto(self, view: memoryview) -> int:
        """Fill memory; returns the number of bytes, 0 at the end of the range."""
        if not self._step and self._position < self._end:
            self._step = memoryview(self._next_step())
            self._position += len(self._step)
        count = min(len(view), len(self._step))
        view[:count] = self._step[:count]
        self._step = self._step[count:]
        return count

    def _next_step(self) -> bytes:
        end = min(self._position + _STEP_BYTES, self._end)
        where = f"{self._store.url}/{self._path}"
        try:
            found = self._store.read(self._path, self._position, end)
        except FileNotFoundError:
            raise broken("the file is gone", where=where) from None
        except K31Error as error:
            raise TransferError(error.what, final=error) from None
        if len(found) != end - self._position:
            raise broken("the file ends early", where=where)
        return found
