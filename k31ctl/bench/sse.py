"""Server-sent events out of bytes that come in any pieces.

Source: WHATWG HTML, section 9.2.6, with one leniency: the last event counts without a blank line.
"""

from typing import Final

from k31ctl.bench.trouble import Trouble, TroubleError

MOST_EVENT_BYTES: Final = 4 * 2**20
_BOM: Final = b"\xef\xbb\xbf"
_PREFIX: Final = b"data: "


class EventSplitter:
    """Returns the data of each event once its blank line is there; comments are only counted."""

    __slots__ = ("_begun", "_held", "_rest", "num_comments")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._held = b""  # what the next piece decides about: half a line end, or a mark's begin
        self._begun = False
        self.num_comments = 0

    @property
    def is_empty(self) -> bool:
        """Whether no event has begun."""
        return not self._rest and not self._held

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end in this piece.

        Bytes that came before are not looked at again, however small the pieces are.
        Raises TroubleError where one event grows beyond ``MOST_EVENT_BYTES``.
        """
        text, self._held = self._held + piece, b""
        if not self._begun:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._held = text
                return []
            self._begun = True
            text = text.removeprefix(_BOM)
        if b"\r" in text:
            if text.endswith(b"\r"):  # a line feed may follow, and then it is one line end
                text, self._held = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._rest:
            seen = len(self._rest) - 1
            self._rest += text
            if self._rest.find(b"\n\n", seen) < 0:
                self._check_size()
                return []
            text = bytes(self._rest)
        parts = text.split(b"\n\n")
        self._rest = bytearray(parts.pop())
        self._check_size()
        found = []
        for part in parts:
            if part.startswith(_PREFIX) and b"\n" not in part:
                found.append(part[6:])
            elif (data := self._data(part)) is not None:
                found.append(data)
        return found

    def finish(self) -> list[bytes]:
        """Return the data of an event that the end of the stream cut the blank line off."""
        text = bytes(self._rest) + self._held
        self._rest, self._held = bytearray(), b""
        data = self._data(text.replace(b"\r", b"\n"))
        return [] if data is None else [data]

    def _check_size(self) -> None:
        if len(self._rest) > MOST_EVENT_BYTES:
            raise TroubleError(Trouble.OVERSIZED, f"an event of more than {MOST_EVENT_BYTES} bytes")

    def _data(self, part: bytes) -> bytes | None:
        lines = []
        for line in part.split(b"\n"):
            if line.startswith(b"data:"):
                lines.append(line[6:] if line.startswith(_PREFIX) else line[5:])
            elif line == b"data":
                lines.append(b"")
            elif line.startswith(b":"):
                self.num_comments += 1
        return b"\n".join(lines) if lines else None
