"""One picture as a data URL, and what it costs in tokens."""

import base64
from typing import Final

from k31ctl.bench.images import square

SIDE: Final = 512
COLOUR: Final = "red"
# ceil(512/28) squared: patches of 14, merged two by two, the edge padded.
# Source: Kimi K3's image processor, patch_size 14 and merge_kernel_size 2.
NUM_TOKENS: Final = 361
_RED: Final = b"\xe0\x10\x10"


def picture_url() -> str:
    """A PNG of one colour."""
    content = base64.b64encode(square(SIDE, _RED)).decode()
    return f"data:image/png;base64,{content}"
