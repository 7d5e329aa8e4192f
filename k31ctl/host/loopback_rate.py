"""How fast one TCP stream over loopback is: what stands for a link where no device has one."""

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from k31ctl.core.measured_host import Rate
from k31ctl.host.memory_rates import rate

_CHUNK_BYTES: Final = 2**20
_NUM_BYTES: Final = 256 * 2**20


def loopback_rate(*, repeats: int, clock: Callable[[], float]) -> Rate:
    """Bytes per second, one way."""
    values = [_sent(clock) for _ in range(repeats)]
    return rate(
        values, f"{_NUM_BYTES >> 20} MiB over one TCP stream on loopback, the median of {repeats}"
    )


def _sent(clock: Callable[[], float]) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = threading.Thread(target=_send, args=(listener.getsockname(),))
        sender.start()
        taken, _ = listener.accept()
        with taken:
            buffer, left, begun = bytearray(_CHUNK_BYTES), _NUM_BYTES, clock()
            while left > 0 and (count := taken.recv_into(buffer)):
                left -= count
            seconds = clock() - begun
        sender.join()
    return (_NUM_BYTES - left) / max(seconds, 1e-9)


def _send(address: tuple[str, int]) -> None:
    chunk = bytes(_CHUNK_BYTES)
    # The taker leaves before the end where it is interrupted.
    with suppress(ConnectionError), socket.create_connection(address) as stream:
        for _ in range(_NUM_BYTES // _CHUNK_BYTES):
            stream.sendall(chunk)
