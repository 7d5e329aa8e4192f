"""What a hub says of a repository, and its bytes by range: the only calls to a hub."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final, TypeVar
from urllib.parse import quote

from k31ctl.fetch.authority import Authority
from k31ctl.fetch.digest_text import is_digest
from k31ctl.fetch.endpoint import endpoint_from
from k31ctl.fetch.header_values import whole_number
from k31ctl.fetch.origins import Counted, Origins, Readable
from k31ctl.fetch.patience import Patience
from k31ctl.fetch.redirects import MOST_REDIRECTS, REDIRECTS, headers_for, redirected, too_many
from k31ctl.fetch.trouble import (
    TransferError,
    broken,
    changed,
    refused_status,
    unreachable,
)
from k31ctl.fetch.wire import Response, Wire, origin
from k31ctl.values import frozen

T = TypeVar("T")

DEFAULT_ENDPOINT: Final = "https://huggingface.co"
_OK, _PARTIAL = 200, 206
_RUN_OUT: Final = (400, 401, 403, 404, 410)
_LOOK_S: Final = 1.0
_PIECE_BYTES: Final = 1024 * 1024


@frozen
class HubFile:
    """One file of a commit; ``sha256`` is known for large files, ``blob_id`` for the others."""

    path: str
    size_bytes: int
    sha256: str | None
    blob_id: str | None

    @property
    def content_id(self) -> str:
        """What names the content: equal ids are equal bytes."""
        return self.sha256 or self.blob_id or ""


@frozen
class Snapshot:
    """A repository at one commit; ``authority`` is who says so, where that is not the hub.

    ``notes`` are what a reader should know of the sources.
    """

    repo: str
    endpoint: str
    commit: str
    files: tuple[HubFile, ...]
    gated: str | None
    licence: str | None
    authority: Authority | None = None
    notes: tuple[str, ...] = ()

    @property
    def total_bytes(self) -> int:
        """Size of all files, in bytes."""
        return sum(file.size_bytes for file in self.files)


class Body:
    """The bytes of one range of a file, read into memory of the caller, in order."""

    def __init__(self, response: Response, *, start: int, end: int, where: str) -> None:
        self._response, self._where = response, where
        self.start, self.end, self.position = start, end, start

    def readinto(self, view: memoryview) -> int:
        """Fill memory; returns the number of bytes, 0 once ``end`` is reached.

        Raises TransferError where the connection ends before that.
        """
        wanted = min(len(view), self.end - self.position)
        if wanted <= 0:
            return 0
        count = self._response.readinto(view[:wanted])
        if count == 0:
            raise _cut(self._where)
        self.position += count
        return count


class Hub:
    """A hub and its mirrors, in order of preference."""

    def __init__(
        self,
        *,
        endpoints: Sequence[str] = (DEFAULT_ENDPOINT,),
        token: str | None = None,
        timeout_s: float = 10.0,
        stall_s: float = 20.0,
        max_retries: int = 8,
        backoff_s: float = 0.5,
        on_retry: Callable[[str, str, float], None] | None = None,
    ) -> None:
        """``on_retry`` is told what is asked again, why, and in how many seconds."""
        self.endpoints = tuple(endpoint_from(text) for text in endpoints)
        self._token = token
        self._max_retries, self._backoff_s = max_retries, backoff_s
        self.on_retry = on_retry
        self._wire = Wire(timeout_s=timeout_s, stall_s=stall_s)
        self._lock = threading.Lock()
        self._locations: dict[tuple[str, str], str] = {}
        self._tags: dict[tuple[str, str], str] = {}
        self.supports_ranges = True
        self.origins = Origins()

    @property
    def stopped(self) -> threading.Event:
        """Set once ``stop`` was called."""
        return self._wire.stopped

    def stop(self) -> None:
        """Cut every connection: work in progress ends with StoppedError."""
        self._wire.stop()

    def cut_slow_until(self, ended: threading.Event) -> None:
        """Cut the connections on which bytes only trickle, so that they are asked for again."""
        while not ended.wait(_LOOK_S):
            self._wire.cut_slow()

    def snapshot(self, repo: str, revision: str = "main") -> Snapshot:
        """Return the commit that a revision stands for, and its files: one request.

        Raises InputError for an unknown repository or revision, RefusedError where access is not
        given, EndpointError where no endpoint answers.
        """
        return self.persist(repo, lambda number: self.asked_once(repo, revision, number=number))

    def asked_once(self, repo: str, revision: str, *, number: int = 0) -> Snapshot:
        """Ask one endpoint, the ``number``-th in turn, for a commit; raises TransferError too."""
        from k31ctl.fetch.hub_metadata import (  # noqa: PLC0415  it imports this module
            Question,
            read_snapshot,
        )

        endpoint = self.endpoints[number % len(self.endpoints)]
        question = Question(repo=repo, revision=revision, endpoint=endpoint, token=self._token)
        return read_snapshot(self._wire, question)

    def chunks(self, snapshot: Snapshot, file: HubFile, start: int, end: int) -> Iterator[bytes]:
        """Yield a range of a file piece by piece, going on after a cut where it ended.

        Raises the K31Error that a failure becomes once asking again has not helped.
        """
        patience = self.patience(file.path)
        while start < end:
            try:
                with self.open_range(
                    snapshot, file, start, end, attempt=patience.num_failures
                ) as body:
                    buffer = memoryview(bytearray(min(_PIECE_BYTES, end - start)))
                    while count := body.readinto(buffer):
                        start += count
                        patience.progressed()
                        yield bytes(buffer[:count])
            except TransferError as error:
                patience.failed(error)

    @contextmanager
    def open_range(
        self, snapshot: Snapshot, file: HubFile, start: int, end: int, *, attempt: int = 0
    ) -> Iterator[Readable]:
        """Ask once for a range of a file; ``attempt`` moves on through the endpoints.

        The body may end before ``end`` where the server gives less. Raises TransferError.
        """
        endpoint = self.endpoints[attempt % len(self.endpoints)]
        response, where = self._ask(endpoint, snapshot, file, start, end)
        with closing(response):
            body = self._body(response, file, start, end, where)
            yield Counted(body, self.origins, path=file.path, source=endpoint)

    def wrong_bytes(self, file: HubFile) -> bool:
        """Note that what came of a file is wrong; returns whether a source is left for it."""
        self.origins.forget(file.path)
        return False

    def patience(self, what: str) -> Patience:
        """Return a counter of failures for one piece of work."""
        return Patience(
            what,
            max_retries=self._max_retries,
            backoff_s=self._backoff_s,
            num_endpoints=len(self.endpoints),
            stopped=self.stopped,
            on_retry=self.on_retry,
        )

    def persist(self, what: str, ask: Callable[[int], T]) -> T:
        """Return what ``ask`` returns, asking again after a TransferError as patience allows."""
        patience = self.patience(what)
        while True:
            try:
                return ask(patience.num_failures)
            except TransferError as error:
                patience.failed(error)

    def _ask(
        self, endpoint: str, snapshot: Snapshot, file: HubFile, start: int, end: int
    ) -> tuple[Response, str]:
        where = f"{endpoint}/{snapshot.repo}/{file.path}"
        first = f"{endpoint}/{quote(snapshot.repo)}/resolve/{snapshot.commit}/{quote(file.path)}"
        key = (endpoint, file.path)
        with self._lock:
            known = self._locations.get(key)
        url = known or first
        for _ in range(MOST_REDIRECTS + 1):
            response = self._wire.get(url, self._headers(url, endpoint, start, end), shown=where)
            if origin(url) == origin(endpoint):
                self._check_commit(response, endpoint, snapshot, file, where)
            if response.status in REDIRECTS:
                target = response.header("Location")
                response.close()
                url = redirected(url, target, where=where)
                continue
            if response.status in (_OK, _PARTIAL):
                self._remember(key, url if url != first else None)
                return response, where
            response.close()
            self._remember(key, None)
            if url == known and response.status in _RUN_OUT:
                url, known = first, None  # the signature of a kept address has run out
                continue
            is_hubs = origin(url) == origin(endpoint) or response.header("X-Error-Code")
            if response.status in _RUN_OUT and not is_hubs:
                raise broken(f"the address it redirects to answers {response.status}", where=where)
            raise refused_status(response.status, where=where, after_s=response.retry_after_s)
        raise too_many(where)

    def _remember(self, key: tuple[str, str], url: str | None) -> None:
        with self._lock:
            if url is None:
                self._locations.pop(key, None)
            else:
                self._locations[key] = url

    def _headers(self, url: str, endpoint: str, start: int, end: int) -> dict[str, str]:
        headers = headers_for(url, endpoint=endpoint, token=self._token)
        return headers | {"Range": f"bytes={start}-{end - 1}"}

    def _check_commit(
        self,
        response: Response,
        endpoint: str,
        snapshot: Snapshot,
        file: HubFile,
        where: str,
    ) -> None:
        """Refuse an answer that is marked as another commit's or as another content."""
        if response.status not in (_OK, _PARTIAL, *REDIRECTS):
            return
        commit = response.header("X-Repo-Commit")
        size = whole_number(response.header("X-Linked-Size"))
        tag = _tag(response.header("X-Linked-Etag") or response.header("ETag"))
        problem = None
        if commit and commit != snapshot.commit:
            problem = f"the server sends commit {commit[:12]}, not {snapshot.commit[:12]}"
        elif size is not None and size != file.size_bytes:
            problem = f"the server has {size} bytes where the commit has {file.size_bytes}"
        elif tag and not self._is_expected(tag, (endpoint, file.path), file):
            problem = "the content has changed under the same commit (its ETag is another one)"
        if problem:
            response.close()
            raise changed(problem, where=where)

    def _is_expected(self, tag: str, key: tuple[str, str], file: HubFile) -> bool:
        """Whether a tag is the file's digest, or, where it is no digest, the one seen before."""
        if is_digest(tag) and len(tag) == len(file.content_id):
            return tag == file.content_id
        with self._lock:
            return self._tags.setdefault(key, tag) == tag

    def _body(self, response: Response, file: HubFile, start: int, end: int, where: str) -> Body:
        coding = response.header("Content-Encoding")
        if coding and coding.lower() != "identity":
            raise broken(
                f"the bytes come encoded ({coding[:20]}), which was not asked for", where=where
            )
        if response.status == _PARTIAL:
            end = _end_of_range(response, file, start, end, where)
            if response.length is not None and response.length < end - start:
                raise broken(
                    f"the server sends {response.length} bytes where it says {end - start}",
                    where=where,
                )
            return Body(response, start=start, end=end, where=where)
        # Without a length, as from HTTP/1.0 or in chunks, the digest alone tells.
        if _is_page(response, file) or response.length not in (None, file.size_bytes):
            raise _not_the_file(response, file, where)
        whole = start == 0 and end == file.size_bytes
        if not whole:
            self.supports_ranges = False
            _skip(response, start, where)
        return Body(response, start=start, end=end, where=where)


def _tag(header: str | None) -> str | None:
    return header.removeprefix("W/").strip('"') if header else None


def _end_of_range(response: Response, file: HubFile, start: int, end: int, where: str) -> int:
    """Return where the range ends that the server says it sends; it may end before ours."""
    text = response.header("Content-Range") or ""
    span, _, total = text.removeprefix("bytes ").partition("/")
    first, _, last = span.partition("-")
    last_byte, num_bytes = whole_number(last), whole_number(total)
    if last_byte is None or whole_number(first) != start or not start <= last_byte < end:
        raise broken(f"the server sends another range: {text[:60]!r}", where=where)
    if num_bytes not in (None, file.size_bytes):
        raise changed(
            f"the server has {num_bytes} bytes where the commit has {file.size_bytes}", where=where
        )
    return last_byte + 1


def _is_page(response: Response, file: HubFile) -> bool:
    kind = response.header("Content-Type") or ""
    return kind.startswith("text/html") and not file.path.endswith((".html", ".htm"))


def _not_the_file(response: Response, file: HubFile, where: str) -> TransferError:
    if _is_page(response, file):
        return broken("a page came back where the file was asked for", where=where)
    return broken(
        f"the server sends {response.length} bytes where the commit has {file.size_bytes}",
        where=where,
    )


def _skip(response: Response, num_bytes: int, where: str) -> None:
    """Read up to where the range begins, from a server that only sends whole files."""
    buffer = memoryview(bytearray(_PIECE_BYTES))
    while num_bytes:
        count = response.readinto(buffer[: min(num_bytes, len(buffer))])
        if count == 0:
            raise _cut(where)
        num_bytes -= count


def _cut(where: str) -> TransferError:
    return unreachable("the connection was cut", where=where)
