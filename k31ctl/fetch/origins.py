"""Where the bytes of each file came from, kept across runs, and how many each source gave."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from k31ctl.values import frozen


class Readable(Protocol):
    """Bytes that are read into memory of the caller, in order."""

    def readinto(self, view: memoryview) -> int:
        """Fill memory; returns the number of bytes, 0 at the end."""


@frozen
class SourceUse:
    """How many bytes one source gave in this run, those of wrong files included."""

    source: str
    num_bytes: int


class Origins:
    """The sources of each file; all methods may be called from any thread.

    ``known`` is from earlier runs; ``save`` is given all of them whenever one changes.
    """

    def __init__(
        self,
        known: Mapping[str, list[str]] | None = None,
        *,
        save: Callable[[Mapping[str, list[str]]], None] = lambda _: None,
    ) -> None:
        self._save = save
        self._lock = threading.Lock()
        self._sources = {path: list(sources) for path, sources in (known or {}).items()}
        self._num_bytes: Counter[str] = Counter()

    def add(self, path: str, source: str, num_bytes: int) -> None:
        """Note bytes of a file."""
        with self._lock:
            self._num_bytes[source] += num_bytes
            known = self._sources.setdefault(path, [])
            if source in known:
                return
            known.append(source)
            self._save(self._sources)

    def forget(self, path: str) -> None:
        """Drop what is known of a file whose bytes are not kept."""
        with self._lock:
            if self._sources.pop(path, None) is not None:
                self._save(self._sources)

    def of(self, path: str) -> tuple[str, ...]:
        """Return the sources of a file, in the order in which they were used."""
        with self._lock:
            return tuple(self._sources.get(path, ()))

    def uses(self) -> tuple[SourceUse, ...]:
        """Return what each source gave in this run, the most first."""
        with self._lock:
            counts = self._num_bytes.most_common()
        return tuple(SourceUse(source=source, num_bytes=count) for source, count in counts)


class Counted:
    """A body that tells where its bytes come from."""

    def __init__(self, body: Readable, origins: Origins, *, path: str, source: str) -> None:
        self._body, self._origins, self._path, self._source = body, origins, path, source

    def readinto(self, view: memoryview) -> int:
        """Fill memory; returns the number of bytes, 0 at the end."""
        count = self._body.readinto(view)
        if count:
            self._origins.add(self._path, self._source, count)
        return count
