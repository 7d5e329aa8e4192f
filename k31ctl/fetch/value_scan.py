"""What is wrong with the bytes of one tensor, block by block, with nothing but bytes methods.

Searching and translating bytes run at memory speed without numpy: the exponent of a BF16 number
fills its high byte but for one bit, so a NaN or an infinity has 0x7f or 0xff there, which real
weights never have (that is 2^127 and above), and two searches find every candidate.

MXFP4: 32 values of E2M1 (magnitudes 0, 0.5, 1, 1.5, 2, 3, 4, 6) share an E8M0 scale 2^(e - 127).
Source: OCP Microscaling Formats (MX) 1.0, sections 5.3, 5.4 and 6.3. The scale is taken from the
largest magnitude of the group, rounded down (section 6.3, largest in [4, 8) scales before
clamping) or up (largest in (3, 6]): either way the largest code stands for 3, 4 or 6. A group that
only has smaller ones was not written by such an encoder, or is not what was written.
"""

from collections.abc import Iterator, Sequence
from typing import Final

GROUP_BYTES: Final = 16
SECTOR_BYTES: Final = 512
_ALL: Final = bytes(range(256))
# Beyond 252, six times the scale is above the largest BF16 number.
_MOST_SCALE: Final = 252
_NAN_SCALE: Final = 255
_MOST_OCTAVES: Final = 16
_ZERO_OCTAVES: Final = 8
# What so few groups have is not how the tensor is; a row of a real matrix has more groups.
_FEW_SCALES, _RARE = 7, 10_000
_LEAST_OF_MAXIMUM: Final = 5  # the code of magnitude 3
_LARGE: Final = bytes(
    int(max(byte & 7, (byte >> 4) & 7) >= _LEAST_OF_MAXIMUM) for byte in range(256)
)
_ZERO_CODES: Final = bytes((0x00, 0x08, 0x80, 0x88))
_NO_GROUP: Final = bytes(GROUP_BYTES)
# Type: bytes of an element, high bytes that a NaN or infinity may have, mask and value of the
# byte below that then decide.
_SPECIAL: Final[dict[str, tuple[int, bytes, int, int]]] = {
    "BF16": (2, b"\x7f\xff", 0x80, 0x80),
    "F32": (4, b"\x7f\xff", 0x80, 0x80),
    "F64": (8, b"\x7f\xff", 0xF0, 0xF0),
    "F16": (2, bytes((*range(0x7C, 0x80), *range(0xFC, 0x100))), 0, 0),
    "F8_E4M3": (1, b"\x7f\xff", 0, 0),
    "F8_E5M2": (1, bytes((*range(0x7C, 0x80), *range(0xFC, 0x100))), 0, 0),
}


def special_values(dtype: str, block: bytes) -> Iterator[int]:
    """Where in a block, in bytes, NaNs and infinities begin; the block holds whole elements."""
    if dtype not in _SPECIAL:
        return
    width, highs, mask, value = _SPECIAL[dtype]
    high = block[width - 1 :: width]
    if not any(byte in high for byte in highs):
        return
    keep = bytes(set(highs))
    table = bytes(1 if byte in keep else 0 for byte in range(256))
    marks = high.translate(table)
    at = marks.find(1)
    while at >= 0:
        below = block[at * width + width - 2] if width > 1 else 0
        if below & mask == value:
            yield at * width
        at = marks.find(1, at + 1)


def scale_counts(block: bytes, counts: dict[int, int]) -> None:
    """Count each scale byte: one pass per value, each over what the others left."""
    while block:
        first = block[:1]
        rest = block.translate(None, first)
        counts[first[0]] = counts.get(first[0], 0) + len(block) - len(rest)
        block = rest


def bad_scales(counts: dict[int, int]) -> dict[int, tuple[str, bool]]:
    """Scale bytes that no encoder writes, or that few groups have, far from all others.

    Returns for each what is wrong, and whether that is damage: far above the others a group would
    drown them; far below them it may be one that was trained to nothing, or be all zeros.
    """
    rare = max(_FEW_SCALES, sum(counts.values()) // _RARE)
    known = sorted((e, n) for e, n in counts.items() if e <= _MOST_SCALE)
    lowest, highest = _bulk_end(known, rare), _bulk_end(known[::-1], rare)
    found = {}
    for exponent in counts:
        if exponent == _NAN_SCALE:
            found[exponent] = "is NaN", True
        elif exponent > _MOST_SCALE:
            found[exponent] = f"is 2^{exponent - 127}, beyond what BF16 holds", True
        elif exponent > highest + _MOST_OCTAVES:
            found[exponent] = f"is 2^{exponent - highest} times the largest of the others", True
        elif exponent < lowest - _MOST_OCTAVES:
            found[exponent] = f"is 2^{exponent - lowest} times the smallest of the others", False
    return found


def _bulk_end(known: Sequence[tuple[int, int]], rare: int) -> int:
    """The first exponent at which more groups were seen than are rare."""
    seen = 0
    for exponent, count in known:
        seen += count
        if seen > rare:
            return exponent
    return known[-1][0] if known else 0


def zero_scales(counts: dict[int, int]) -> frozenset[int]:
    """Scale bytes that stand over groups of zeros: 0, and what an encoder has for them.

    Some encoders take a smallest magnitude instead of zero, far below every real one.
    """
    used = sorted(counts)
    if len(used) > 1 and used[1] >= used[0] + _ZERO_OCTAVES:
        return frozenset((0, used[0]))
    return frozenset((0,))


def weak_groups(packed: bytes) -> Iterator[int]:
    """Where in a block groups begin whose largest magnitude is below 3; whole groups only."""
    marks = packed.translate(_LARGE)
    at = marks.find(_NO_GROUP)
    while at >= 0:
        start = -(-at // GROUP_BYTES) * GROUP_BYTES
        if marks[start : start + GROUP_BYTES] == _NO_GROUP:
            yield start
            at = marks.find(_NO_GROUP, start + GROUP_BYTES)
        else:
            at = marks.find(_NO_GROUP, start)


def is_zero_group(packed: bytes, start: int) -> bool:
    """Whether all 32 values of a group are zero."""
    return not has_values(packed[start : start + GROUP_BYTES])


def has_values(packed: bytes) -> bool:
    """Whether any of the packed values is not zero."""
    return bool(packed.translate(None, _ZERO_CODES))


def is_all_zero(block: bytes) -> bool:
    """Whether a block holds nothing but zero bytes."""
    return block.count(0) == len(block)
