"""Peers in order of preference with the hub behind them, as one source of a download.

What a file must be is asked of the hub. Only where the hub cannot be asked does the record of the
first peer that has one stand in for it, and the answer says so.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from k31ctl.errors import InputError, K31Error, NotProvenError
from k31ctl.fetch.authority import Authority, AuthorityKind
from k31ctl.fetch.hub import DEFAULT_ENDPOINT, Hub, HubFile, Snapshot
from k31ctl.fetch.listing import Listing
from k31ctl.fetch.origins import Counted, Readable
from k31ctl.fetch.peers import Peer
from k31ctl.fetch.safe_path import require_safe
from k31ctl.fetch.trouble import StoppedError, TransferError

_REST_S: Final = 5.0
_LONGEST_REST_S: Final = 60.0
_FOR_EVER: Final = float("inf")


class PeerHub(Hub):
    """A hub whose bytes come from peers first; ``is_offline`` leaves the hub out altogether."""

    def __init__(
        self,
        peers: Sequence[Peer],
        *,
        is_offline: bool,
        endpoints: Sequence[str] = (DEFAULT_ENDPOINT,),
        token: str | None = None,
        timeout_s: float = 10.0,
        stall_s: float = 20.0,
        max_retries: int = 8,
        on_retry: Callable[[str, str, float], None] | None = None,
    ) -> None:
        super().__init__(
            endpoints=endpoints,
            token=token,
            timeout_s=timeout_s,
            stall_s=stall_s,
            max_retries=max_retries,
            on_retry=on_retry,
        )
        self._peers = tuple(peers)
        self._has_hub = not is_offline
        self._is_offline = is_offline
        self._rests: dict[tuple[str, str], float] = {}
        self._rests_lock = threading.Lock()

    def stop(self) -> None:
        """Cut every connection, those to peers as well."""
        super().stop()
        for peer in self._peers:
            peer.stop()

    def snapshot(self, repo: str, revision: str = "main") -> Snapshot:
        """Return the commit and its files, as the hub says or else the first peer with a record.

        Raises InputError where a peer holds something else, or where nobody says what there is.
        """
        listings, notes = self._listings(repo, revision)
        reason = "--offline"
        if not self._is_offline:
            try:
                snapshot = self._asked(repo, revision)
            except TransferError as error:
                if not listings:
                    raise error.final from None
                reason = f"{self.endpoints[0]}: {error.reason}"
            else:
                self._has_hub = True
                return replace(snapshot, notes=(*notes, *_other_commits(listings, snapshot)))
        self._has_hub = False
        if not listings:
            raise _no_record(self._peers, notes)
        return _from_peer(*listings[0], reason=reason, notes=notes)

    @contextmanager
    def open_range(
        self, snapshot: Snapshot, file: HubFile, start: int, end: int, *, attempt: int = 0
    ) -> Iterator[Readable]:
        """Ask once, the first peer that has the file or else the hub; raises TransferError."""
        peer = self._peer_for(file)
        if peer is None and self._has_hub:
            with super().open_range(snapshot, file, start, end, attempt=attempt) as found:
                yield found
            return
        if peer is None:
            raise self._nobody(file)
        try:
            with peer.open_range(file, start, end) as body:
                counted = Counted(body, self.origins, path=file.path, source=peer.label)
                yield _Stoppable(counted, self.stopped)
        except TransferError as error:
            rest_s = min(error.after_s or _REST_S, _LONGEST_REST_S) if error.again else _FOR_EVER
            self._rest(peer, file, rest_s)
            raise TransferError(
                f"{peer.label}: {error.reason}",
                final=error.final,
                again=error.again or self._has_source(file),
                after_s=None if self._has_source(file) else error.after_s,
            ) from None

    def wrong_bytes(self, file: HubFile) -> bool:
        """Ask the peer that gave wrong bytes no more for this file, the first of several."""
        given = self.origins.of(file.path)
        super().wrong_bytes(file)
        blamed = next((peer for peer in self._peers if peer.label in given), None)
        if blamed is None:
            return False
        self._rest(blamed, file, _FOR_EVER)
        return self._has_source(file)

    def _asked(self, repo: str, revision: str) -> Snapshot:
        """Ask each endpoint once: where peers can stand in, long patience helps nobody."""
        failures = []
        for number in range(len(self.endpoints)):
            try:
                return self.asked_once(repo, revision, number=number)
            except TransferError as error:
                failures.append(error)
        raise failures[0]

    def _listings(
        self, repo: str, revision: str
    ) -> tuple[list[tuple[Peer, Listing]], tuple[str, ...]]:
        """Ask every peer what it holds; returns also what is to be said of those that fail."""
        found: list[tuple[Peer, Listing]] = []
        notes: list[str] = []
        for peer in self._peers:
            try:
                listing = peer.listing(repo, revision)
            except TransferError as error:
                notes.append(f"{peer.label} is not used: {error.reason}")
                continue
            if listing is None:
                notes.append(f"{peer.label} has no record; its files are tried by name and size")
                continue
            for file in listing.snapshot.files:
                require_safe(file.path, where=peer.label)
            found.append((peer, listing))
        return found, tuple(notes)

    def _peer_for(self, file: HubFile) -> Peer | None:
        """Return the first peer that may have the file and has not just failed.

        Where there is no hub, one that has failed but may come back is asked again.
        """
        now = time.monotonic()
        with self._rests_lock:
            rests = dict(self._rests)
        until = [(rests.get((peer.label, file.path), 0.0), peer) for peer in self._peers]
        for end, peer in until:
            if end <= now and peer.holds(file):
                return peer
        if self._has_hub:
            return None
        return next((peer for end, peer in until if end < _FOR_EVER and peer.holds(file)), None)

    def _has_source(self, file: HubFile) -> bool:
        return self._has_hub or self._peer_for(file) is not None

    def _rest(self, peer: Peer, file: HubFile, seconds: float) -> None:
        with self._rests_lock:
            self._rests[peer.label, file.path] = time.monotonic() + seconds

    def _nobody(self, file: HubFile) -> TransferError:
        final = NotProvenError(
            f"no peer has {file.path} as its record says",
            where=", ".join(peer.label for peer in self._peers),
            remedy="name another --from-peer, leave out --offline so that the hub is asked, or "
            f"leave the file out with --exclude {file.path}",
        )
        return TransferError("no peer has it", final=final, again=False)


class _Stoppable:
    """A body that ends with StoppedError once the work is stopped: a file does not by itself."""

    def __init__(self, body: Readable, stopped: threading.Event) -> None:
        self._body, self._stopped = body, stopped

    def readinto(self, view: memoryview) -> int:
        """Fill memory; returns the number of bytes, 0 at the end."""
        if self._stopped.is_set():
            raise StoppedError
        return self._body.readinto(view)


def _from_peer(peer: Peer, listing: Listing, *, reason: str, notes: tuple[str, ...]) -> Snapshot:
    authority = Authority(kind=AuthorityKind.PEER, source=peer.label, reason=reason)
    if not listing.is_complete:
        notes += (f"{peer.label} holds a part of the commit; only that part is fetched",)
    return replace(listing.snapshot, authority=authority, notes=notes)


def _other_commits(listings: Sequence[tuple[Peer, Listing]], snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(
        f"{peer.label} holds commit {listing.snapshot.commit[:12]}; "
        "what is equal in this one is taken from it"
        for peer, listing in listings
        if listing.snapshot.commit != snapshot.commit
    )


def _no_record(peers: Sequence[Peer], notes: tuple[str, ...]) -> K31Error:
    return InputError(
        f"no peer says what the files must be: {'; '.join(notes)}",
        where=", ".join(peer.label for peer in peers),
        remedy="leave out --offline so that the hub says it, or name a peer with a "
        "k31ctl-manifest.json",
    )
