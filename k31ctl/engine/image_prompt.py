"""Images of one prompt, encoded as the prompt is read."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from k31ctl.engine.images import PreparedImage
from k31ctl.errors import RefusedError


class PromptImages:
    """Where the images of a prompt stand; each is encoded when its first token is read.

    Its vectors are kept until its last token is read. Raises RefusedError where the prompt has
    more or fewer places than the images have tokens.
    """

    def __init__(
        self,
        tokens: Sequence[int],
        images: Sequence[PreparedImage],
        *,
        media_pad: int,
        encode: Callable[[PreparedImage], Tensor],
    ) -> None:
        self._places = [place for place, token in enumerate(tokens) if token == media_pad]
        self._ends = list(accumulate(image.tokens.num_tokens for image in images))
        self._images, self._encode = images, encode
        self._encoded: dict[int, Tensor] = {}
        needed = self._ends[-1] if self._ends else 0
        if needed != len(self._places):
            raise RefusedError(
                f"the prompt has {len(self._places):,} places for image tokens, "
                f"and its images have {needed:,}",
                where=f"token {media_pad}",
                remedy="repeat it once for each token of each image",
            )

    @property
    def num_encoded(self) -> int:
        """Images whose vectors are held now."""
        return len(self._encoded)

    def within(self, begin: int, end: int) -> tuple[list[int], Tensor] | None:
        """Which of these tokens are an image's, counted from ``begin``, and the vectors of them."""
        first, last = bisect_left(self._places, begin), bisect_left(self._places, end)
        if first == last:
            return None
        parts, number = [], bisect_right(self._ends, first)
        while number < len(self._ends) and (start := self._start(number)) < last:
            vector_MT = self._vectors(number)
            parts.append(vector_MT[max(0, first - start) : last - start])
            if self._ends[number] <= last:
                del self._encoded[number]
            number += 1
        return [place - begin for place in self._places[first:last]], torch.cat(parts)

    def _start(self, number: int) -> int:
        return self._ends[number - 1] if number else 0

    def _vectors(self, number: int) -> Tensor:
        if number not in self._encoded:
            self._encoded[number] = self._encode(self._images[number])
        return self._encoded[number]
