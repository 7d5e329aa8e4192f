"""Images that are made for prompts, read by another program."""

import base64
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.bench.images import Images
from tests.bench.runs import measured
from tests.bench.sse_server import answer, running_server

PIL = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@settings(max_examples=25)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 9))
def test_an_image_is_read_by_pillow_in_its_size(width: int, height: int, number: int) -> None:
    image = PIL.open(BytesIO(Images(seed=1, width=width, height=height).png(number)))
    image.load()
    assert (image.format, image.size) == ("PNG", (width, height))


def test_every_request_has_pixels_of_its_own_and_the_same_again() -> None:
    images = Images(seed=1, width=40, height=30)
    pixels = {PIL.open(BytesIO(images.png(n))).convert("RGB").tobytes() for n in range(20)}
    assert len(pixels) == 20
    assert images.png(3) == Images(seed=1, width=40, height=30).png(3)
    assert images.png(3) != Images(seed=2, width=40, height=30).png(3)


def test_an_image_of_no_size_is_refused() -> None:
    with pytest.raises(ValueError, match="pixels wide"):
        Images(seed=1, width=0, height=1)


def test_images_go_with_every_prompt() -> None:
    with running_server(answer) as server:
        found = measured(server.url, num_requests=2, num_images=2, image_size=(64, 48))
    said = [asked.json["messages"][0]["content"] for asked in server.completions()]
    assert found.completed == 2
    assert [[part["type"] for part in parts] for parts in said] == [
        ["text", "image_url", "image_url"]
    ] * 2
    urls = [part["image_url"]["url"] for parts in said for part in parts[1:]]
    assert len(set(urls)) == 4
    image = PIL.open(BytesIO(base64.b64decode(urls[0].removeprefix("data:image/png;base64,"))))
    assert image.size == (64, 48)
