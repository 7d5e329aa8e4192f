"""The range of bytes that an HTTP request asks for (RFC 9110, section 14)."""

from k31ctl.values import frozen


@frozen
class ByteRange:
    """Bytes ``start`` up to ``end``."""

    start: int
    end: int


def asked_range(header: str | None, *, size_bytes: int) -> ByteRange | None:
    """Return the one range that is asked for, None where the whole is to be sent.

    Several ranges, another unit or nonsense mean the whole, as the standard allows. Raises
    ValueError for a range that lies outside the content.
    """
    unit, _, spec = (header or "").partition("=")
    first, dash, last = spec.strip().partition("-")
    if unit.strip().lower() != "bytes" or not dash or not _are_numbers(first, last):
        return None
    if not first:
        if int(last) == 0 or size_bytes == 0:
            raise ValueError(header)
        return ByteRange(start=max(0, size_bytes - int(last)), end=size_bytes)
    if last and int(last) < int(first):
        return None
    if int(first) >= size_bytes:
        raise ValueError(header)
    end = min(int(last) + 1, size_bytes) if last else size_bytes
    return ByteRange(start=int(first), end=end)


def _are_numbers(first: str, last: str) -> bool:
    given = [text for text in (first, last) if text]
    return bool(given) and all(text.isascii() and text.isdigit() for text in given)
