"""Images for prompts: PNG files of a given size, each with colours of its own.

The picture is a mosaic that is compressed once. From request to request only the palette changes,
768 bytes, so that no cache of a server finds an image again and making one costs nothing.
"""

import struct
import zlib
from base64 import b64encode
from random import Random
from typing import Final

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_BLOCK: Final = 16  # pixels at the side of a piece of the mosaic
_COLOURS: Final = 256
_EIGHT_BITS, _TRUE_COLOUR, _PALETTE = 8, 2, 3
_MOST_SIDE: Final = 16_384


class Images:
    """Mosaics of one size."""

    def __init__(self, *, seed: int, width: int, height: int) -> None:
        if not (0 < width <= _MOST_SIDE and 0 < height <= _MOST_SIDE):
            raise ValueError(f"an image is from 1 to {_MOST_SIDE} pixels wide and high")
        self._seed = seed
        self._head = _begun(width, height, _PALETTE)
        self._tail = _chunk(b"IDAT", _mosaic(Random(seed), width, height)) + _chunk(b"IEND", b"")

    def png(self, number: int) -> bytes:
        """Return the file of an image; the same number gives the same."""
        palette = Random(f"{self._seed}:{number}").randbytes(3 * _COLOURS)
        return self._head + _chunk(b"PLTE", palette) + self._tail

    def part(self, number: int) -> dict[str, object]:
        """Return an image as a part of a message."""
        url = f"data:image/png;base64,{b64encode(self.png(number)).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}


def square(side: int, colour: bytes) -> bytes:
    """Return the PNG file of a square of one colour, of three bytes."""
    rows = zlib.compress((b"\0" + colour * side) * side, 9)
    return _begun(side, side, _TRUE_COLOUR) + _chunk(b"IDAT", rows) + _chunk(b"IEND", b"")


def _begun(width: int, height: int, kind: int) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, _EIGHT_BITS, kind, 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header)


def _mosaic(random: Random, width: int, height: int) -> bytes:
    """Rows of pixels as numbers of colours, each behind the filter of its row, compressed."""
    packer = zlib.compressobj(6)
    found = []
    for top in range(0, height, _BLOCK):
        colours = random.randbytes(-(-width // _BLOCK))
        row = b"".join(bytes([colour]) * _BLOCK for colour in colours)[:width]
        found.append(packer.compress((b"\0" + row) * min(_BLOCK, height - top)))
    return b"".join([*found, packer.flush()])


def _chunk(kind: bytes, data: bytes) -> bytes:
    """Source: Portable Network Graphics (PNG) Specification, third edition, section 5.3."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
