"""HTTP/2 on one connection: requests and answers of HTTP/1.1 as its frames, and back.

All else in this room speaks HTTP/1.1. A connection carries one request at a time, whatever the
protocol, so that an answer never waits behind another's bytes. Frames are h2's work, which is
Python: an event costs some ten times what it costs under HTTP/1.1, and the client's lag shows it.
Source: RFC 9113.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from k31ctl.bench.trouble import Trouble, TroubleError
from k31ctl.errors import UsageError

if TYPE_CHECKING:
    from h2.events import DataReceived, Event

ALPN: Final = "h2"
_WINDOW_BYTES: Final = 2**24
_MOST_HEADER_BYTES: Final = 2**16
_OF_ONE_HOP: Final = ("connection", "host", "keep-alive", "transfer-encoding", "upgrade")
# The head of a frame: three bytes of length, its type, flags, its stream.
_HEAD_BYTES: Final = 9
_TYPE: Final = 3
_GOAWAY: Final = 7
_LAST_CHUNK: Final = b"0\r\n\r\n"


def check_http2() -> None:
    """Raise UsageError where the library for frames is not installed."""
    try:
        import h2.connection  # noqa: F401, PLC0415  an extra
    except ImportError:
        raise UsageError(
            "HTTP/2 needs the package h2",
            where="--http2",
            remedy="pip install 'k31ctl[http2]'",
        ) from None


class Http2Link:
    """The state of one connection; what it returns is to be sent, or to be read as HTTP/1.1."""

    __slots__ = (
        "_body",
        "_has_closed",
        "_has_heard",
        "_is_leaving",
        "_is_under_way",
        "_link",
        "_rest",
        "_scheme",
        "_stream",
    )

    def __init__(self, *, is_tls: bool) -> None:
        from h2.config import H2Configuration  # noqa: PLC0415  an extra
        from h2.connection import H2Connection  # noqa: PLC0415
        from h2.settings import SettingCodes, Settings  # noqa: PLC0415

        self._scheme = "https" if is_tls else "http"
        self._link = H2Connection(H2Configuration(client_side=True, header_encoding="latin-1"))
        self._link.local_settings = Settings(
            client=True,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: _MOST_HEADER_BYTES,
            },
        )
        self._link.initiate_connection()
        self._link.increment_flow_control_window(_WINDOW_BYTES)
        self._stream, self._body, self._rest = 0, memoryview(b""), b""
        self._has_heard = self._has_closed = self._is_leaving = self._is_under_way = False

    @property
    def has_ended(self) -> bool:
        """Whether nothing comes any more, now or once it would be asked."""
        return self._has_closed or (self._is_leaving and not self._is_under_way)

    def request(self, content: bytes) -> bytes:
        """Return what sends a request of HTTP/1.1, as far as the server has room for it.

        Raises TroubleError where the server takes no more requests.
        """
        from h2.exceptions import ProtocolError  # noqa: PLC0415  an extra

        if self._is_leaving:
            raise TroubleError(Trouble.RESET, "the server takes no more requests")
        head, _, body = content.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        fields = {name.lower(): value.strip() for name, _, value in pairs}
        pseudo = {
            ":method": method,
            ":scheme": self._scheme,
            ":authority": fields["host"],
            ":path": path,
        }
        kept = {name: value for name, value in fields.items() if name not in _OF_ONE_HOP}
        try:
            self._stream = self._link.get_next_available_stream_id()
            self._link.send_headers(
                self._stream, list((pseudo | kept).items()), end_stream=not body
            )
        except ProtocolError as error:
            raise TroubleError(Trouble.RESET, f"no more requests are taken: {error}") from None
        self._body, self._is_under_way = memoryview(body), True
        return self._more()

    def take(self, piece: bytes) -> tuple[bytes, bytes]:
        """Return what came as HTTP/1.1 has it, and what is to be sent because of it.

        Nothing is the end of the connection. Raises TroubleError where the server ends the request,
        or speaks something else.
        """
        from h2.exceptions import ProtocolError  # noqa: PLC0415  an extra

        if not self._has_heard and (not piece or piece.startswith(b"HTTP/")):
            answered = "answered in HTTP/1" if piece else "closed the connection"
            raise TroubleError(Trouble.BAD_HTTP, f"not HTTP/2: the server {answered}")
        self._has_heard, self._has_closed = True, not piece
        answer = b""
        for frame in self._frames(piece):
            if frame[_TYPE] == _GOAWAY:  # h2 would refuse what still comes of the answer
                self._is_leaving = True
                continue
            try:
                found = self._link.receive_data(frame)
            except ProtocolError as error:
                text = f"not HTTP/2: {error or type(error).__name__}"
                raise TroubleError(Trouble.BAD_HTTP, text) from None
            for event in found:
                answer += self._said(event)
        return answer, self._more()

    def _frames(self, piece: bytes) -> Iterator[bytes]:
        """Yield the frames that are whole."""
        data, at = self._rest + piece, 0
        while len(data) - at >= _HEAD_BYTES:
            size = int.from_bytes(data[at : at + 3], "big")
            if size > self._link.max_inbound_frame_size:
                raise TroubleError(Trouble.BAD_HTTP, f"not HTTP/2: a frame of {size:,} bytes")
            end = at + _HEAD_BYTES + size
            if end > len(data):
                break
            yield data[at:end]
            at = end
        self._rest = data[at:]

    def _said(self, event: "Event") -> bytes:
        """What one event of the connection is in HTTP/1.1."""
        from h2 import events  # noqa: PLC0415  an extra

        match event:
            case events.ResponseReceived():
                return _head(event.headers)
            case events.DataReceived():
                return self._data(event)
            case events.StreamEnded():
                self._is_under_way = False
                return _LAST_CHUNK
            case events.StreamReset():
                code = getattr(event.error_code, "name", event.error_code)
                raise TroubleError(Trouble.RESET, f"the stream was reset: {code}")
        return b""

    def _data(self, event: "DataReceived") -> bytes:
        self._link.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        return b"%x\r\n%s\r\n" % (len(event.data), event.data) if event.data else b""

    def _more(self) -> bytes:
        """Frames that wait to be sent, with as much of the request's body as there is room for."""
        while self._body:
            room = min(
                self._link.local_flow_control_window(self._stream),
                self._link.max_outbound_frame_size,
            )
            if room <= 0:
                break
            piece, self._body = self._body[:room], self._body[room:]
            self._link.send_data(self._stream, bytes(piece), end_stream=not self._body)
        return self._link.data_to_send()


def _head(headers: Iterable[Any]) -> bytes:
    """Status and headers as HTTP/1.1 has them; the body comes in chunks."""
    fields: dict[str, str] = dict(headers)
    lines = [f"HTTP/1.1 {fields[':status']} -", "transfer-encoding: chunked"]
    lines += [
        f"{name}: {value}"
        for name, value in fields.items()
        if not name.startswith(":") and name not in (*_OF_ONE_HOP, "content-length")
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
