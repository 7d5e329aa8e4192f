"""One request to a served folder, and its answer: the hub's protocol, read only."""

import hmac
import json
import os
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from k31ctl import __version__
from k31ctl.fetch.byte_range import ByteRange, asked_range
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.hub_documents import model_info, tag, tree
from k31ctl.fetch.listing import Listing
from k31ctl.fetch.manifest import MANIFEST_NAME
from k31ctl.fetch.served_folder import ServedFolder
from k31ctl.fetch.throttle import Throttle
from k31ctl.fetch.trouble import StoppedError

_IDLE_S: Final = 30.0
_PIECE_BYTES: Final = 16 * 1024 * 1024
_RETRY_AFTER_S: Final = 2


class Service(Protocol):
    """What an answer needs of the server."""

    served: ServedFolder
    token: str | None
    throttle: Throttle

    def note_request(self) -> None:
        """Count a request."""

    def note_bytes(self, num_bytes: int) -> None:
        """Count bytes of files that were sent."""


class PeerAnswer(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version = f"k31ctl/{__version__}"
    sys_version = ""
    error_message_format = "%(code)d %(message)s\n"
    error_content_type = "text/plain"
    disable_nagle_algorithm = True
    timeout = _IDLE_S
    service: Service

    def log_message(self, *_: object) -> None:
        """Keep quiet: the server counts, and tells now and then."""

    def do_GET(self) -> None:
        """Answer with content."""
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        """Answer with headers alone."""
        self._answer(has_body=False)

    def _answer(self, *, has_body: bool) -> None:
        self.service.note_request()
        try:
            if not self._is_allowed():
                self._plain(401, "a token is needed\n", {"WWW-Authenticate": "Bearer"})
            else:
                self._route(unquote(urlsplit(self.path).path), has_body=has_body)
        except (OSError, StoppedError):
            self.close_connection = True

    def _is_allowed(self) -> bool:
        token = self.service.token
        given = self.headers.get("Authorization", "")
        return token is None or hmac.compare_digest(given.encode(), f"Bearer {token}".encode())

    def _route(self, path: str, *, has_body: bool) -> None:
        listing = self.service.served.listing
        repo, commit = listing.snapshot.repo, listing.snapshot.commit
        api, resolve = f"/api/models/{repo}", f"/{repo}/resolve/"
        if path == "/":
            self._json(self._state(listing))
        elif path == f"/{MANIFEST_NAME}":
            self._manifest()
        elif path == api or path.startswith(f"{api}/"):
            self._describe(listing, path.removeprefix(api).strip("/"))
        elif path.startswith(resolve):
            revision, _, name = path.removeprefix(resolve).partition("/")
            if revision in (listing.revision, commit):
                self._file(name, commit=commit, has_body=has_body)
            else:
                self._missing("RevisionNotFound", "no such revision here")
        elif "/resolve/" in path or path.startswith("/api/models/"):
            self._missing("RepoNotFound", f"only {repo} is here")
        else:
            self._missing("EntryNotFound", "nothing here")

    def _state(self, listing: Listing) -> dict[str, Any]:
        counts = self.service.served.counts()
        return {
            "server": self.server_version,
            "repo": listing.snapshot.repo,
            "revision": listing.revision,
            "commit": listing.snapshot.commit,
            "files": counts.num_files,
            "files_proven": counts.num_proven,
            "bytes": counts.bytes_total,
            "bytes_proven": counts.bytes_proven,
        }

    def _manifest(self) -> None:
        content = self.service.served.manifest()
        if content is None:
            self._missing("EntryNotFound", "there is no record yet")
        else:
            self._send(200, content, {"Content-Type": "application/json"})

    def _describe(self, listing: Listing, rest: str) -> None:
        what, _, revision = rest.partition("/")
        revision = revision.partition("/")[0] if what == "tree" else revision
        if what not in ("", "revision", "tree"):
            self._missing("EntryNotFound", "nothing here")
        elif revision not in ("", listing.revision, listing.snapshot.commit):
            self._missing("RevisionNotFound", "no such revision here")
        else:
            self._json(tree(listing) if what == "tree" else model_info(listing))

    def _file(self, name: str, *, commit: str, has_body: bool) -> None:
        served = self.service.served
        file = served.file(name)
        handle = None if file is None else served.open(file)
        if file is None or handle is None:
            self._absent(file)
            return
        try:
            self._content(handle, file, commit=commit, has_body=has_body)
        finally:
            os.close(handle)

    def _absent(self, file: HubFile | None) -> None:
        if file is not None and self.service.served.is_growing:
            self._plain(503, "not proven yet\n", {"Retry-After": str(_RETRY_AFTER_S)})
        else:
            self._missing("EntryNotFound", "no proven file of this name")

    def _content(self, handle: int, file: HubFile, *, commit: str, has_body: bool) -> None:
        size, quoted = file.size_bytes, f'"{tag(file)}"'
        headers = {
            "ETag": quoted,
            "X-Repo-Commit": commit,
            "X-Linked-Etag": quoted,
            "X-Linked-Size": str(size),
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        if self.headers.get("If-None-Match") == quoted:
            self._head(304, headers)
            return
        wanted = self.headers.get("If-Range") in (None, quoted)
        try:
            span = asked_range(self.headers.get("Range") if wanted else None, size_bytes=size)
        except ValueError:
            self._plain(416, "no such range\n", {"Content-Range": f"bytes */{size}"})
            return
        whole = ByteRange(start=0, end=size)
        if span is not None:
            headers["Content-Range"] = f"bytes {span.start}-{span.end - 1}/{size}"
        sent = span or whole
        headers["Content-Length"] = str(sent.end - sent.start)
        self._head(200 if span is None else 206, headers)
        if has_body:
            self._stream(handle, sent)

    def _stream(self, handle: int, span: ByteRange) -> None:
        """Let the kernel send the bytes, in pieces so that they can be counted and held back."""
        service, start = self.service, span.start
        with os.fdopen(os.dup(handle), "rb", buffering=0) as file:
            while start < span.end:
                piece = min(service.throttle.piece_bytes(_PIECE_BYTES), span.end - start)
                count = self.connection.sendfile(file, start, piece)
                if count == 0:
                    raise ConnectionAbortedError
                start += count
                service.note_bytes(count)
                service.throttle.spend(count)

    def _json(self, document: object) -> None:
        content = json.dumps(document).encode()
        self._send(200, content, {"Content-Type": "application/json"})

    def _missing(self, code: str, message: str) -> None:
        self._plain(404, f"{message}\n", {"X-Error-Code": code, "X-Error-Message": message})

    def _plain(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        self._send(status, text.encode(), {"Content-Type": "text/plain", **headers})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self._head(status, {**headers, "Content-Length": str(len(content))})
        if self.command != "HEAD":
            self.wfile.write(content)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
