"""One HTTP/1.1 answer out of bytes that come in any pieces: status, headers, body.

Sources: RFC 9112, sections 6 and 7; RFC 9110, section 8.4.1.
"""

import zlib
from typing import Final

from k31ctl.bench.trouble import Trouble, TroubleError

MOST_HEAD_BYTES: Final = 64 * 1024
MOST_INFLATED_BYTES: Final = 16 * 2**20
_MOST_SIZE_LINE: Final = 4096
_OK: Final = 200
_NO_CONTENT: Final = (204, 304)
_GZIP_WINDOW: Final = 31


class ResponseReader:
    """Feeds on an answer and returns its body; ``is_done`` says that the body is whole.

    Every method raises TroubleError where the bytes are not HTTP.
    """

    __slots__ = (
        "_inflate",
        "_is_chunked",
        "_left",
        "_rest",
        "has_ended_head",
        "headers",
        "is_done",
        "status",
    )

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_ended_head = False
        self.is_done = False
        self._rest = b""
        self._left = -1  # bytes of the body or chunk still to come, -1 where not known
        self._is_chunked = False
        self._inflate: zlib._Decompress | None = None

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection may carry another request."""
        return self.is_done and self.headers.get("connection", "").lower() != "close"

    @property
    def is_between_chunks(self) -> bool:
        """Whether the next byte begins a chunk of a body that is not compressed."""
        return (
            self._is_chunked
            and not (self._left or self._rest or self.is_done)
            and self._inflate is None
        )

    def feed(self, piece: bytes) -> bytes:
        """Return the part of the body that this piece brings."""
        data = self._rest + piece if self._rest else piece
        self._rest = b""
        if not self.has_ended_head:
            data = self._head(data)
            if not self.has_ended_head:
                return b""
        body = self._chunks(data) if self._is_chunked else self._plain(data)
        return self._inflated(body) if self._inflate is not None and body else body

    def close(self) -> None:
        """Take note that the connection ended."""
        if not self.has_ended_head:
            raise TroubleError(Trouble.CUT, "the connection ended before an answer")
        if (self._is_chunked or self._left > 0) and not self.is_done:
            raise TroubleError(Trouble.CUT, "the connection ended inside the answer")
        self.is_done = True

    def _head(self, data: bytes) -> bytes:
        """Read the head where it is whole, and return what follows it."""
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > MOST_HEAD_BYTES:
                    raise TroubleError(Trouble.OVERSIZED, "headers of more than 64 KiB")
                if not b"HTTP/1.".startswith(data[:7]):
                    raise TroubleError(Trouble.BAD_HTTP, f"not HTTP: {data[:40]!r}")
                self._rest = data
                return b""
            lines = data[:end].decode("latin-1").split("\r\n")
            data = data[end + 4 :]
            self.status = _status(lines[0])
            if self.status >= _OK or self.status == 101:  # noqa: PLR2004 - not an interim answer
                break
        self.headers = _headers(lines[1:])
        self.has_ended_head = True
        self._frame()
        return data

    def _frame(self) -> None:
        """Find out how the body ends."""
        coding = self.headers.get("transfer-encoding", "").lower()
        self._is_chunked = coding.split(",")[-1].strip() == "chunked"
        length = self.headers.get("content-length")
        if self._is_chunked:
            self._left = 0
        elif self.status in _NO_CONTENT:
            self._left, self.is_done = 0, True
        elif length is not None:
            if not (length.isascii() and length.isdigit()):
                raise TroubleError(Trouble.BAD_HTTP, f"a Content-Length of {length[:40]!r}")
            self._left = int(length[:18])
            self.is_done = self._left == 0
        encoding = self.headers.get("content-encoding", "identity").lower()
        if encoding in ("gzip", "x-gzip"):
            self._inflate = zlib.decompressobj(_GZIP_WINDOW)
        elif encoding != "identity":
            raise TroubleError(Trouble.BAD_HTTP, f"a Content-Encoding of {encoding[:40]!r}")

    def _plain(self, data: bytes) -> bytes:
        if self._left < 0:
            return data
        body = data[: self._left]
        self._left -= len(body)
        self.is_done = self._left == 0
        return body

    def _chunks(self, data: bytes) -> bytes:
        """Return the content of chunks; ``_left`` counts a chunk's bytes with its line end."""
        found: list[bytes] = []
        at = 0
        if self._left:
            left = self._left
            content = data[: max(left - 2, 0)]
            self._left = max(left - len(data), 0)
            if self._left:
                return content
            found.append(content)
            at = left
        while (end := data.find(b"\r\n", at)) >= 0:
            size = _chunk_size(data[at:end])
            begin = end + 2
            if size == 0:
                self._trailers(data[at:])
                break
            at = begin + size + 2
            if at > len(data):
                self._left = at - len(data)
                found.append(data[begin : begin + size])
                break
            found.append(data[begin : begin + size])
        else:
            self._rest = data[at:]
            if len(self._rest) > _MOST_SIZE_LINE:
                raise TroubleError(Trouble.BAD_HTTP, "a chunk without a size")
        return found[0] if len(found) == 1 else b"".join(found)

    def _trailers(self, data: bytes) -> None:
        """Take the end of a chunked body, with or without trailers, once it is whole."""
        after = data.find(b"\r\n") + 2
        if data.startswith(b"\r\n", after) or data.find(b"\r\n\r\n", after) >= 0:
            self.is_done = True
        elif len(data) > MOST_HEAD_BYTES:
            raise TroubleError(Trouble.OVERSIZED, "trailers of more than 64 KiB")
        else:
            self._rest = data

    def _inflated(self, body: bytes) -> bytes:
        assert self._inflate is not None
        try:
            found = self._inflate.decompress(body, MOST_INFLATED_BYTES)
        except zlib.error as error:
            raise TroubleError(Trouble.BAD_HTTP, f"not gzip: {error}") from None
        if self._inflate.unconsumed_tail:
            raise TroubleError(Trouble.OVERSIZED, "gzip that unpacks to more than 16 MiB")
        return found


def _status(line: str) -> int:
    words = line.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():  # noqa: PLR2004
        raise TroubleError(Trouble.BAD_HTTP, f"not a status line: {line[:40]!r}")
    return int(words[1][:3])


def _headers(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise TroubleError(Trouble.BAD_HTTP, f"not a header: {line[:40]!r}")
        found[name.strip().lower()] = value.strip()
    return found


def _chunk_size(line: bytes) -> int:
    try:
        size = int(line.split(b";", 1)[0], 16)
    except ValueError:
        raise TroubleError(Trouble.BAD_HTTP, f"not a chunk size: {line[:40]!r}") from None
    if size < 0:
        raise TroubleError(Trouble.BAD_HTTP, "a negative chunk size")
    return size
