"""Images of a request: proven small enough before they are decoded, then scaled as the model's.

Source of the steps: the release's media_proc_cfg. Alpha is kept through the scaling and lies over a
chessboard then; the padding is black, before any normalisation.
"""

import base64
import binascii
import io
import struct
import zlib
from typing import TYPE_CHECKING, Final

from k31ctl.core.chat_format.json_fields import bad_field
from k31ctl.core.chat_format.messages import ImagePart
from k31ctl.core.model import Vision
from k31ctl.core.vision import ImageTokens, image_tokens
from k31ctl.values import frozen

if TYPE_CHECKING:
    from PIL import Image

MAX_IMAGE_BYTES: Final = 32 * 2**20
MAX_IMAGE_PIXELS: Final = 7168**2
_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF")
_SQUARE: Final = 8
_LIGHT, _DARK = b"\xff", b"\xb4"
_REMEDY: Final = "send a PNG, JPEG, WebP or GIF image as data:image/...;base64,..."


@frozen
class SizedImage:
    """An image of which only the header was read."""

    data: bytes
    tokens: ImageTokens
    where: str


@frozen
class PreparedImage:
    """Pixels for the vision tower: rows of red, green, blue, a byte each, padded to whole patches.

    ``tokens`` holds the sizes: the picture in ``rgb`` is ``padded_width`` by ``padded_height``.
    """

    rgb: bytes
    tokens: ImageTokens


def sized_image(part: ImagePart, vision: Vision) -> SizedImage:
    """Return an image and what it will cost, without decoding it.

    Raises ``InputError`` where it is no image, too large, or not sent along.
    """
    data = _data(part)
    with _opened(data, part.where) as image:
        width, height = image.size
    if width * height > MAX_IMAGE_PIXELS:
        raise bad_field(
            part.where,
            f"is {width} x {height}, more than {MAX_IMAGE_PIXELS:,} pixels",
            "scale it down; the model does not see more than 7168 pixels on a side",
        )
    tokens = image_tokens(vision, width=width, height=height)
    return SizedImage(data=data, tokens=tokens, where=part.where)


def prepared_image(sized: SizedImage) -> PreparedImage:
    """Return the pixels that the model sees."""
    from PIL import Image  # noqa: PLC0415

    size = (sized.tokens.scaled_width, sized.tokens.scaled_height)
    with _opened(sized.data, sized.where) as image:
        try:
            has_alpha = "A" in image.getbands() or "transparency" in image.info
            decoded = image.convert("RGBA" if has_alpha else "RGB")
        except _damages() as error:
            raise bad_field(sized.where, f"is damaged: {error}", _REMEDY) from None
    scaled = decoded.resize(size, Image.Resampling.BICUBIC)
    if has_alpha:
        scaled = Image.alpha_composite(_chessboard(size), scaled).convert("RGB")
    padded = Image.new("RGB", (sized.tokens.padded_width, sized.tokens.padded_height))
    padded.paste(scaled, (0, 0))
    return PreparedImage(rgb=padded.tobytes(), tokens=sized.tokens)


def _data(part: ImagePart) -> bytes:
    head, comma, body = part.url.partition(",")
    if not comma or not head.lower().startswith("data:") or not head.lower().endswith(";base64"):
        raise bad_field(part.where, "is no data URL, and this server fetches nothing", _REMEDY)
    if len(body) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise bad_field(part.where, f"is larger than {MAX_IMAGE_BYTES:,} bytes", "scale it down")
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise bad_field(part.where, "is not base64", _REMEDY) from None


def _opened(data: bytes, where: str) -> "Image.Image":
    from PIL import Image  # noqa: PLC0415

    try:
        return Image.open(io.BytesIO(data), formats=_FORMATS)
    except _damages():
        raise bad_field(where, "is no image that can be read", _REMEDY) from None


def _damages() -> tuple[type[Exception], ...]:
    """What a decoder raises at damaged or hostile files."""
    from PIL import Image  # noqa: PLC0415

    bombs = (Image.DecompressionBombError, Image.DecompressionBombWarning)
    broken = (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, OverflowError)
    return (*bombs, *broken, KeyError, MemoryError, struct.error, zlib.error)


def _chessboard(size: tuple[int, int]) -> "Image.Image":
    from PIL import Image  # noqa: PLC0415

    columns, rows = (-(-length // _SQUARE) for length in size)
    lines = [
        (first + second) * (columns // 2 + 1)
        for first, second in ((_LIGHT, _DARK), (_DARK, _LIGHT))
    ]
    squares = b"".join(lines[row % 2][:columns] for row in range(rows))
    board = Image.frombytes("L", (columns, rows), squares)
    board = board.resize((columns * _SQUARE, rows * _SQUARE), Image.Resampling.NEAREST)
    return board.crop((0, 0, *size)).convert("RGBA")
