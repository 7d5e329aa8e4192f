"""Pictures in tests: drawn, sent as data URLs, and prepared as the model sees them."""

import base64
import io
from typing import Any

from PIL import Image

from k31ctl.core.chat_format.messages import ImagePart
from k31ctl.core.model import Vision
from k31ctl.engine.images import PreparedImage, prepared_image, sized_image


def picture(width: int, height: int, *, seed: int = 0) -> Image.Image:
    """Every pixel another colour; another seed, another picture."""
    image = Image.new("RGB", (width, height))
    image.putdata(
        [
            ((x * 7 + seed * 40) % 256, (y * 11 + seed * 90) % 256, (x * y + seed * 13) % 256)
            for y in range(height)
            for x in range(width)
        ]
    )
    return image


def data_url(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def prepared(image: Image.Image, vision: Vision) -> PreparedImage:
    return prepared_image(sized_image(ImagePart(url=data_url(image), where="here"), vision))


def asked(*content: Any, **body: Any) -> dict[str, Any]:
    """A chat of one message; pictures become parts of it, anything else text."""
    parts = [
        {"type": "image_url", "image_url": {"url": data_url(one)}}
        if isinstance(one, Image.Image)
        else {"type": "text", "text": one}
        for one in content
    ]
    return {"messages": [{"role": "user", "content": parts}], **body}
