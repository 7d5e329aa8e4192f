"""Images against the documented sizes and colours, and files made to do harm."""

import base64
import io
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from k31ctl.core.chat_format.messages import ImagePart
from k31ctl.engine.images import PreparedImage, prepared_image, sized_image
from k31ctl.errors import InputError
from tests.engine.scripted import VISION


def saved(image: Image.Image, kind: str = "PNG", **save: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **save)
    return file.getvalue()


def part(data: bytes) -> ImagePart:
    url = "data:image/any;base64," + base64.b64encode(data).decode()
    return ImagePart(url=url, where="messages[0].content[0]")


def prepared(data: bytes) -> PreparedImage:
    return prepared_image(sized_image(part(data), VISION))


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG file of one bit to a pixel, whose header claims what it likes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + check

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in chunks)


@pytest.mark.parametrize(
    ("width", "height", "num_tokens"),
    [
        (1, 1, 1),
        (512, 512, 361),
        (1920, 1080, 2691),
        (3840, 2160, 10_764),
        (1861, 7041, 16_817),
        (7680, 4320, 16_587),
    ],
)
def test_an_image_costs_what_is_documented(width: int, height: int, num_tokens: int) -> None:
    sized = sized_image(part(png(width, height)), VISION)
    assert sized.tokens.num_tokens == num_tokens


@given(st.integers(1, 20_000), st.integers(1, 2_000))
def test_no_image_costs_more_than_the_most(width: int, height: int) -> None:
    assert sized_image(part(png(width, height)), VISION).tokens.num_tokens <= 16_817


def test_padding_is_black_and_below_and_right() -> None:
    made = prepared(saved(Image.new("RGB", (30, 20), (10, 20, 30))))
    image = Image.frombytes("RGB", (56, 28), made.rgb)
    assert image.getpixel((29, 19)) == (10, 20, 30)
    assert image.getpixel((30, 0)) == image.getpixel((0, 20)) == (0, 0, 0)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_shows_the_chessboard(mode: str) -> None:
    image = Image.new(mode, (28, 28), 0)
    save: dict[str, Any] = {"transparency": 0} if mode == "P" else {}
    shown = Image.frombytes("RGB", (28, 28), prepared(saved(image, **save)).rgb)
    places = ((0, 0), (7, 7), (8, 0), (0, 8), (8, 8), (16, 0))
    assert [shown.getpixel(at) for at in places] == [
        (grey, grey, grey) for grey in (255, 255, 180, 180, 255, 255)
    ]


@pytest.mark.parametrize("mode", ["1", "L", "P", "I;16", "RGB"])
def test_every_kind_of_picture_becomes_colours(mode: str) -> None:
    assert len(prepared(saved(Image.new(mode, (28, 28)))).rgb) == 28 * 28 * 3


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "WEBP"])
def test_other_formats_are_read(kind: str) -> None:
    assert prepared(saved(Image.new("RGB", (28, 28), "white"), kind)).rgb[:3] == b"\xff" * 3


@pytest.mark.parametrize(
    "data",
    [png(7169, 7168), png(2**31 - 1, 2**31 - 1), png(60_000, 60_000), b"", b"BM" + b"\0" * 99],
)
def test_a_bomb_is_refused_by_its_header(data: bytes) -> None:
    with pytest.raises(InputError):
        sized_image(part(data), VISION)


def test_what_is_too_long_is_refused_before_it_is_read() -> None:
    url = "data:image/png;base64," + "A" * (50 * 2**20)
    with pytest.raises(InputError, match="larger"):
        sized_image(ImagePart(url=url, where="here"), VISION)


@pytest.mark.parametrize(
    "url",
    ["", "http://127.0.0.1/a.png", "file:///etc/passwd", "data:image/png,AA", "data:;base64,?"],
)
def test_only_what_is_sent_along_is_read(url: str) -> None:
    with pytest.raises(InputError):
        sized_image(ImagePart(url=url, where="here"), VISION)


def test_a_cut_image_is_refused() -> None:
    whole = saved(Image.effect_noise((64, 64), 50))
    with pytest.raises(InputError, match="damaged"):
        prepared(whole[: len(whole) // 2])


PICTURE = Image.effect_noise((40, 30), 80)
FILES = [saved(PICTURE, kind) for kind in ("PNG", "JPEG", "GIF", "WEBP")]


@given(st.sampled_from(FILES), st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255))))
def test_damage_is_refused_or_makes_another_picture(
    data: bytes, changes: list[tuple[int, int]]
) -> None:
    damaged = bytearray(data)
    for place, value in changes:
        damaged[place % len(damaged)] = value
    try:
        made = prepared(bytes(damaged))
    except InputError:
        return
    assert len(made.rgb) == made.tokens.padded_width * made.tokens.padded_height * 3
