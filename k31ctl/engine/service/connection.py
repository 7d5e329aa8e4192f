"""One client's connection: a body that is read within bounds, work that ends when it hangs up."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from k31ctl.engine.service.faults import ApiError, stopping
from k31ctl.engine.service.limits import Limits

T = TypeVar("T")
_SKIPPED_BODIES: Final = 4  # how many of the largest body are read behind one that is refused


class Bodies:
    """Reads bodies; what all of them hold together is bounded."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._reading: set[asyncio.Timeout] = set()
        self._is_stopping = False
        self.num_bytes = 0

    def stop(self) -> None:
        """Wait for no body any longer."""
        self._is_stopping = True
        for timeout in self._reading:
            timeout.reschedule(asyncio.get_running_loop().time())

    async def read(self, request: Request) -> bytes:
        """Return a request's body; the caller hands its bytes back with ``release``."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(415, "the body must be JSON: send Content-Type: application/json")
        body = bytearray()
        try:
            async with self._in_time():
                await self._fill(body, request.stream())
        except BaseException:
            self.release(len(body))
            raise
        return bytes(body)

    @asynccontextmanager
    async def _in_time(self) -> AsyncGenerator[None, None]:
        timeout = asyncio.timeout(self._limits.body_s)
        try:
            async with timeout:
                self._reading.add(timeout)
                try:
                    yield
                finally:
                    self._reading.discard(timeout)
        except TimeoutError:
            if self._is_stopping:
                raise stopping() from None
            text = f"the body did not come within {self._limits.body_s:g} seconds"
            raise ApiError(408, text) from None

    async def _fill(self, body: bytearray, chunks: AsyncGenerator[bytes, None]) -> None:
        """Collect a body; of one that is refused the rest is read and left, within bounds.

        Many clients read no answer before they have sent everything.
        """
        async for chunk in chunks:
            self.num_bytes += len(chunk)
            body += chunk
            try:
                self._check(len(body))
            except ApiError:
                self.release(len(body))
                body.clear()
                await _skipped(chunks, most_bytes=_SKIPPED_BODIES * self._limits.max_body_bytes)
                raise

    def release(self, num_bytes: int) -> None:
        """Forget a body."""
        self.num_bytes -= num_bytes

    def _check(self, num_bytes: int) -> None:
        most = self._limits.max_body_bytes
        if num_bytes > most:
            raise ApiError(413, f"the body is larger than {most:,} bytes: send less at a time")
        share = self._limits.max_pending_bytes // self._limits.max_connections
        if self.num_bytes > self._limits.max_pending_bytes and num_bytes > share:
            raise ApiError(503, "too many large requests at a time: try again")


async def _skipped(chunks: AsyncGenerator[bytes, None], *, most_bytes: int) -> None:
    num_bytes = 0
    async for chunk in chunks:
        num_bytes += len(chunk)
        if num_bytes > most_bytes:
            return


def json_object(body: bytes) -> Mapping[str, Any]:
    """Return the object that a body holds."""
    try:
        value = json.loads(body)
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except ValueError as error:  # behind a semicolon stands advice to Python's programmers
        raise ApiError(400, f"the body is not JSON: {str(error).partition(';')[0]}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body is JSON, but no object")
    return value


async def unless_gone(receive: Receive, work: Awaitable[T]) -> T:
    """Return what work brings; it is cancelled, and waited for, when the client hangs up.

    Raises ``ClientDisconnect`` then.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """An answer in pieces; the pieces end, closed, when the client hangs up."""

    media_type = "text/event-stream"

    def __init__(
        self,
        first: bytes,
        rest: AsyncGenerator[bytes, None],
        *,
        headers: Mapping[str, str],
        stall_s: float,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", **headers})
        del self.headers["content-length"]
        self._first, self._rest, self._stall_s = first, rest, stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the pieces as they come."""
        try:
            with suppress(ClientDisconnect, TimeoutError):
                await unless_gone(receive, self._send(send))
        finally:
            await self._rest.aclose()

    async def _send(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(head)
        await self._body(send, self._first)
        async for piece in self._rest:
            await self._body(send, piece)
        await send({"type": "http.response.body", "body": b""})

    async def _body(self, send: Send, piece: bytes) -> None:
        """Send a piece; a client that leaves too much unread is given up like one that is gone."""
        async with asyncio.timeout(self._stall_s):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
