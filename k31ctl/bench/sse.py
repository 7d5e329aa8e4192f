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

    __slots__ = ("_begun", "_rest", "num_comments")

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False
        self.num_comments = 0

    @property
    def is_empty(self) -> bool:
        """Whether no event has begun."""
        return not self._rest

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end in this piece.

        Raises TroubleError where one event grows beyond ``MOST_EVENT_BYTES``.
        """
        text = self._rest + piece if self._rest else piece
        if not self._begun:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._rest = text
                return []
            self._begun = True
            text = text.removeprefix(_BOM)
        held = b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # a line feed may follow, and then it is one line end
                text, held = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        parts = text.split(b"\n\n")
        rest = parts.pop() + held
        if len(rest) > MOST_EVENT_BYTES:
            raise TroubleError(Trouble.OVERSIZED, f"an event of more than {MOST_EVENT_BYTES} bytes")
        self._rest = rest
        found = []
        for part in parts:
            if part.startswith(_PREFIX) and b"\n" not in part:
                found.append(part[6:])
            elif (data := self._data(part)) is not None:
                found.append(data)
        return found

    def finish(self) -> list[bytes]:
        """Return the data of an event that the end of the stream cut the blank line off."""
        text, self._rest = self._rest, b""
        data = self._data(text.replace(b"\r", b"\n"))
        return [] if data is None else [data]

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
