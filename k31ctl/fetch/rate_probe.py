"""How fast bytes come just now, from a quarter of a second on one connection."""

import time
from typing import Final

from k31ctl.fetch.hub import Hub, HubFile, Snapshot
from k31ctl.fetch.trouble import TransferError

_PROBE_BYTES: Final = 4 * 1024 * 1024
_PROBE_S: Final = 0.25
# A read waits until its memory is full, so this is what a slow link is waited for at least.
_PIECE_BYTES: Final = 16 * 1024


def measured_rate(hub: Hub, snapshot: Snapshot, file: HubFile) -> float | None:
    """Read the begin of a file for a moment; returns bytes per second, None where none came.

    Asked once: what another try could mend is left to the download. The time until the first byte
    is not counted, since a download spends it once a file and not once a piece. Raises the final
    K31Error where access is not given, which a plan has to say.
    """
    end = min(file.size_bytes, _PROBE_BYTES)
    piece = memoryview(bytearray(_PIECE_BYTES))
    taken, seconds = 0, 0.0
    try:
        with hub.open_range(snapshot, file, 0, end) as body:
            start = time.monotonic()
            while seconds < _PROBE_S and (count := body.readinto(piece)):
                taken += count
                seconds = time.monotonic() - start
    except TransferError as error:
        if not error.again:
            raise error.final from None
    return taken / seconds if taken and seconds else None
