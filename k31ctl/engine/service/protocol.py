"""HTTP below the application: what is no request is answered in the form of all other errors."""

import json
from contextlib import suppress
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from k31ctl.engine.service.faults import ApiError

_REMEDY: Final = "check its first line, its headers and the lengths in them and before each chunk"


class Protocol(H11Protocol):
    """One connection; h11 alone is used, so that it is the same whatever else is installed."""

    def send_400_response(self, msg: str) -> None:
        """Answer what h11 cannot read, where no answer has begun, and hang up.

        ``msg`` is the same for all of it, and goes to the log.
        """
        document = ApiError(400, f"the request is not HTTP/1.1: {_REMEDY}").document()
        body = json.dumps(document).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        with suppress(h11.LocalProtocolError):
            head = h11.Response(status_code=400, headers=headers, reason=b"Bad Request")
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
