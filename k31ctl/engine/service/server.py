"""Runs the service on a socket until it is told to stop."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from k31ctl.engine.service.app import Service
from k31ctl.engine.service.generator import Generator
from k31ctl.engine.service.limits import Limits
from k31ctl.engine.service.protocol import Protocol
from k31ctl.engine.service.tasks import ServedModel
from k31ctl.errors import InputError

LOOPBACK: Final = "127.0.0.1"
_KEPT_ALIVE_S: Final = 120
_GRACE_S: Final = 5


def run_service(
    model: ServedModel,
    generator: Generator,
    *,
    host: str = LOOPBACK,
    port: int = 8000,
    limits: Limits | None = None,
    api_key: str | None = None,
    when_ready: Callable[[str], None] = lambda _: None,
    when_ended: Callable[[], None] = lambda: None,
) -> None:
    """Serve until interrupted; ``when_ready`` is told the address once it can be reached.

    ``when_ended`` is called behind the last answer, before a signal ends the process.

    Port 0 takes a free one. Raises ``InputError`` where the address cannot be had.
    """
    service = Service(model, generator, limits=limits or Limits(), api_key=api_key)
    with _listening(host, port) as listener:
        server = StoppingServer(service, when_ended)
        asyncio.run(_serve(server, listener, when_ready))


def require_free(host: str, port: int) -> None:
    """Raise ``InputError`` where the address cannot be had, before a model is read for nothing."""
    _listening(host, port).close()


class StoppingServer(uvicorn.Server):
    """A server that tells open clients that it ends, instead of waiting for their answers."""

    def __init__(self, service: Service, when_ended: Callable[[], None] = lambda: None) -> None:
        super().__init__(_configured(service))
        self._service, self._when_ended = service, when_ended

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is open, then the connections."""
        self._service.stop()
        await super().shutdown(sockets)
        self._when_ended()


def _configured(service: Service) -> uvicorn.Config:
    """How the server runs it.

    Idle connections are kept for longer than clients keep them, so that none is closed just as its
    next request arrives.
    """
    return uvicorn.Config(
        _until_cancelled(service.app()),
        port=0,
        log_level="warning",
        access_log=False,
        lifespan="off",
        http=type("Limited", (Protocol,), {"limits": service.limits}),
        timeout_keep_alive=_KEPT_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )


def _until_cancelled(app: ASGIApp) -> ASGIApp:
    """The application; only the end of the server cancels it, and a trace of that says nothing."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(asyncio.CancelledError):
            await app(scope, receive, send)

    return run


async def _serve(
    server: uvicorn.Server, listener: socket.socket, when_ready: Callable[[str], None]
) -> None:
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    while not server.started and not serving.done():
        await asyncio.sleep(0.01)
    if server.started:
        host, port = listener.getsockname()[:2]
        when_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    await serving


def _listening(host: str, port: int) -> socket.socket:
    if not host:  # to a socket, no name means every interface
        remedy = f"name an address: {LOOPBACK}, or 0.0.0.0 for every interface"
        raise InputError("is empty", where="--host", remedy=remedy)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]  # the address follows
        what = f"cannot be listened on: {reason}"
        remedy = "choose another --host or --port"
        raise InputError(what, where=f"{host}:{port}", remedy=remedy) from None
