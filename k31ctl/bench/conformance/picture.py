"""One picture as a data URL, and what it costs in tokens."""

import base64
import struct
import zlib
from typing import Final

SIDE: Final = 512
COLOUR: Final = "red"
# ceil(512/28) squared: patches of 14, merged two by two, the edge padded.
# Source: Kimi K3's image processor, patch_size 14 and merge_kernel_size 2.
NUM_TOKENS: Final = 361
_RED: Final = b"\xe0\x10\x10"


def picture_url() -> str:
    """A PNG of one colour."""
    row = b"\x00" + _RED * SIDE
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    content = (
        b"\x89PNG\r\n\x1a\n"
        + _chunk(b"IHDR", header)
        + _chunk(b"IDAT", zlib.compress(row * SIDE, 9))
        + _chunk(b"IEND", b"")
    )
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
