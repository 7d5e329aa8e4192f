"""Which files of a prefix are proven: kept in the store, so that any machine can go on."""

import json
import threading
from contextlib import suppress
from typing import Any, Final

from k31ctl.errors import RefusedError
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.object_store import ObjectStore, StoredFile
from k31ctl.fetch.seal import is_sha256, sealed, unsealed
from k31ctl.outside_json import parsed
from k31ctl.values import fields_of, frozen

_NAME: Final = ".k31ctl/journal.json"
_SCHEMA: Final = "k31ctl/store-journal/v1"
_MAX_BYTES: Final = 64 * 2**20


@frozen
class StoreProof:
    """A file whose bytes were right when they were sent, and what the store called it then."""

    content_id: str
    sha256: str
    size_bytes: int
    tag: str
    sources: tuple[str, ...]


class StoreJournal:
    """The proofs of one prefix; replaced whole after each file."""

    def __init__(self, store: ObjectStore) -> None:
        self._store, self._lock = store, threading.Lock()
        raw = _read(store)
        repo = raw.get("repo")
        self.repo: str | None = repo if isinstance(repo, str) else None
        self._proofs = _proofs(raw.get("files"))

    def begin(self, repo: str) -> None:
        """Note whose files these are; raises RefusedError for another's."""
        if self.repo not in (None, repo):
            raise RefusedError(
                f"the prefix holds {self.repo}, not {repo}",
                where=self._store.url,
                remedy="name another prefix with --to",
                rule="fetch-other-repository",
            )
        self.repo = repo
        with self._lock:
            self._save()

    def proof(self, file: HubFile) -> StoreProof | None:
        """Return the proof of a file that the store has unchanged since."""
        found = self._proofs.get(file.path)
        if found is None or not file.content_id or found.content_id != file.content_id:
            return None
        if file.sha256 not in (None, found.sha256):
            return None
        there = self._store.stat(file.path)
        known = StoredFile(size_bytes=found.size_bytes, tag=found.tag)
        return found if there == known else None

    def add(self, file: HubFile, *, sha256: str, sources: tuple[str, ...]) -> None:
        """Note that a file is there and proven."""
        there = self._store.stat(file.path)
        if there is None or there.size_bytes != file.size_bytes:
            raise RefusedError(
                "the store does not show the file that it has taken",
                where=f"{self._store.url}/{file.path}",
                remedy="run the same command again, or use another store",
                rule="store-consistency",
            )
        proof = StoreProof(
            content_id=file.content_id,
            sha256=sha256,
            size_bytes=there.size_bytes,
            tag=there.tag,
            sources=sources,
        )
        with self._lock:
            self._proofs[file.path] = proof
            self._save()

    def _save(self) -> None:
        files = {path: sealed(path, _plain(proof)) for path, proof in sorted(self._proofs.items())}
        state = {"schema": _SCHEMA, "repo": self.repo, "files": files}
        self._store.put(_NAME, json.dumps(state, indent=1).encode())


def _read(store: ObjectStore) -> dict[str, Any]:
    content = store.read_small(_NAME, most_bytes=_MAX_BYTES)
    try:
        found = parsed(content or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("schema") == _SCHEMA else {}


def _plain(proof: StoreProof) -> dict[str, Any]:
    return fields_of(proof) | {"sources": list(proof.sources)}


def _proofs(raw: Any) -> dict[str, StoreProof]:
    """Return the proofs that are as they were written; a file without one is sent again."""
    found = {}
    for path, entry in raw.items() if isinstance(raw, dict) else ():
        claims = unsealed(path, entry)
        if claims is not None and is_sha256(claims.get("sha256")):
            with suppress(TypeError, KeyError):
                found[path] = StoreProof(**claims | {"sources": tuple(claims["sources"])})
    return found
