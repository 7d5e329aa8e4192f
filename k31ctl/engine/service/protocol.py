"""HTTP below the application: what is no request is answered in the form of all other errors.

Connections are bounded, and so is the time that a client may take to say what it wants.
"""

import asyncio
import json
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from k31ctl.engine.service.faults import ApiError
from k31ctl.engine.service.limits import Limits

_REMEDY: Final = "check its first line, its headers and the lengths in them and before each chunk"


class Protocol(H11Protocol):
    """One connection; h11 alone is used, so that it is the same whatever else is installed."""

    limits = Limits()
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, or tell it to come back where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            self._end(ApiError(503, "too many connections are open: try again"))
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        """Read on; the beginning of a request is waited for, what is answered is not."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._await_head()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answer what h11 cannot read, where no answer has begun, and hang up.

        ``msg`` is the same for all of it, and goes to the log.
        """
        self._end(ApiError(400, f"the request is not HTTP/1.1: {_REMEDY}"))

    def _await_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(self.limits.head_s, self._hang_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _hang_up(self) -> None:
        seconds = f"{self.limits.head_s:g} seconds"
        self._end(ApiError(408, f"the request did not begin and end its headers within {seconds}"))

    def _end(self, fault: ApiError) -> None:
        body = json.dumps(fault.document()).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        if fault.status == HTTPStatus.SERVICE_UNAVAILABLE:
            headers.append((b"retry-after", b"1"))
        with suppress(h11.LocalProtocolError):
            head = h11.Response(
                status_code=fault.status, headers=headers, reason=HTTPStatus(fault.status).phrase
            )
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
