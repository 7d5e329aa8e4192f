"""The JSON of a safetensors header, read without making more of it than it may stand for.

Two ways lead to the same answer. The quick one takes a header that is spelled as every known writer
spells it, in whole columns. The other takes any spelling, entry by entry, and ends at the first
thing that no header can hold: so a hostile header costs no more memory than its tensors would.
"""

import json
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import prod
from typing import Any, Final

from k31ctl.core.found_tensors import TensorColumns, TensorKind

MAX_TENSORS: Final = 1_000_000
MAX_KINDS: Final = 10_000
MAX_METADATA: Final = 100_000
MAX_NAME_BYTES: Final = 4096
ELEMENT_BITS: Final = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16,
    "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip

_METADATA: Final = "__metadata__"
_MAX_RANK: Final = 32
_MAX_ELEMENTS: Final = 2**63
_MAX_BITS: Final = 2**64
_OFFSETS: Final = 2
_KEYS: Final = frozenset(("dtype", "shape", "data_offsets"))
_QUOTES: Final = 8  # of an entry: three keys and a type
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")

# The quick way: what stands between a name, its kind and its offsets, each as one mark.
_MARKS: Final = ((b'":{"dtype":"', b"\x01"), (b'],"data_offsets":[', b"\x02"), (b']},"', b"\x03"))
_ORDER: Final = b"\x01\x02\x03"
_ONE_MARK: Final = bytes.maketrans(_ORDER, b"\x03\x03\x03")
_ALL_BUT_MARKS: Final = bytes(set(range(256)) - set(_ORDER))
_ALL_PLAIN: Final = bytes(set(range(32, 127)) - set(b"\\"))
_PLAIN_KIND: Final = re.compile(r'([A-Z0-9_]+)","shape":\[([0-9,]*)')
_QUOTES_OF_KIND: Final = 3
_PIECE_BYTES: Final = 1 << 20
_MOST_PIECE_BYTES: Final = 2 << 20
_PREFIX: Final = b'{"'
_PREFIX_OF_METADATA: Final = b'{"__metadata__":'
_BEHIND_METADATA: Final = b',"'
_END: Final = b"]}}"

# The other way, by JSON's grammar. The quantifiers give nothing back: no memory for that is kept.
_KEY: Final = re.compile(
    rb'[ \t\n\r]*"([^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+)"[ \t\n\r]*+:[ \t\n\r]*+'
)
_TEXT: Final = (
    rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u(?:[0-9a-cA-CefEF][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2}'
    rb'|[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))[^"\\\x00-\x1f]*+)*+"'
)
_PAIR: Final = re.compile(rb"[ \t\n\r]*+%b[ \t\n\r]*+:[ \t\n\r]*+%b" % (_TEXT, _TEXT))
_ENTRY: Final = re.compile(rb"\{[^{}]{0,4096}\}")
_AFTER: Final = re.compile(rb"[ \t\n\r]*+([,}])")
_EMPTY: Final = re.compile(rb"[ \t\n\r]*+\}")
_REST: Final = re.compile(rb"[ \t\n\r]*+\Z")


def _whole(text: str) -> int:
    """A number as the format has it: -0 is none."""
    return -1 if text[0] == "-" else int(text)


_ANY: Final = json.JSONDecoder(parse_int=_whole)
_PAIRS: Final = json.JSONDecoder(parse_int=_whole, object_pairs_hook=list)
Columns = tuple[TensorColumns, list[int]]


class BadHeader(Exception):  # noqa: N818 - never leaves this room
    """A header or an entry that is not what the format says."""


def plain_columns(raw: bytes) -> Columns | None:
    """The tensors of a header in plain spelling, sound and end to end; None for any other.

    Also gives where each begins, in bytes of the data. Half a million entries are the time that an
    answer takes, so they are looked at as columns, a piece of the text at a time.
    """
    start = _first_name(raw)
    end = len(raw.rstrip(b" ")) - len(_END)
    if start is None or not raw.endswith(_END, 0, end + len(_END)):
        return None
    columns = _Plain()
    if not all(map(columns.add, _pieces(raw, start, end))):
        return None
    names = set(columns.names)
    if len(names) != len(columns.names) or _METADATA in names:
        return None
    return TensorColumns(columns.names, columns.kinds), columns.begins


def _first_name(raw: bytes) -> int | None:
    """Where the first tensor's name begins, behind metadata where there are some."""
    if not raw.startswith(_PREFIX_OF_METADATA):
        return len(_PREFIX) if raw.startswith(_PREFIX) else None
    start = len(_PREFIX_OF_METADATA)
    try:
        end = _metadata_end(raw, start)
    except BadHeader:
        return None
    is_plain = end - start < _PIECE_BYTES and raw[start:end].isascii()
    return (
        end + len(_BEHIND_METADATA) if is_plain and raw.startswith(_BEHIND_METADATA, end) else None
    )


def _pieces(raw: bytes, start: int, end: int) -> Iterator[bytes]:
    """Cut a text between two entries, about once in a mebibyte, without what is between them."""
    between = _MARKS[2][0]
    while start < end:
        cut = end if end - start <= _PIECE_BYTES else raw.find(between, start + _PIECE_BYTES, end)
        cut = end if cut < 0 else cut
        yield raw[start : min(cut, start + _MOST_PIECE_BYTES + 1)]  # no copy of what is too long
        start = cut + len(between)


class _Plain:
    """Columns of the entries so far, which are sound and lie end to end."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.kinds: list[TensorKind] = []
        self.begins: list[int] = []
        self.position = 0
        self._kind_of: dict[str, TensorKind] = {}

    def add(self, text: bytes) -> bool:
        """Take the entries of a piece; False where one is not plain, sound and in its place."""
        if len(text) > _MOST_PIECE_BYTES or text.translate(None, _ALL_PLAIN):
            return False
        for written, mark in _MARKS:
            text = text.replace(written, mark)
        marks = text.translate(None, _ALL_BUT_MARKS)
        count = len(marks) // len(_ORDER) + 1
        if marks + _ORDER[2:] != _ORDER * count or len(self.names) + count > MAX_TENSORS:
            return False
        if text.count(b'"') != _QUOTES_OF_KIND * count:
            return False
        fields = text.translate(_ONE_MARK).decode().split("\x03")
        names, kinds, spans = fields[0::3], fields[1::3], fields[2::3]
        if max(map(len, names)) > MAX_NAME_BYTES or not self._learn(kinds):
            return False
        return self._place(names, kinds, spans)

    def _learn(self, texts: Sequence[str]) -> bool:
        for text in set(texts).difference(self._kind_of):
            kind = _plain_kind(text)
            if kind is None:
                return False
            self._kind_of[text] = kind
        return len(self._kind_of) <= MAX_KINDS

    def _place(self, names: list[str], texts: list[str], spans: list[str]) -> bool:
        """Take entries whose offsets are written as the sizes before them add up."""
        kinds = list(map(self._kind_of.__getitem__, texts))
        bounds = list(accumulate((kind.num_bytes for kind in kinds), initial=self.position))
        written = list(map(str, bounds))
        if spans != list(map("{},{}".format, written, written[1:])):
            return False
        self.names += names
        self.kinds += kinds
        self.position = bounds.pop()
        self.begins += bounds
        return True


def _plain_kind(text: str) -> TensorKind | None:
    found = _PLAIN_KIND.fullmatch(text)
    try:
        return kind_of(found[1], json.loads(f"[{found[2]}]")) if found else None
    except (ValueError, BadHeader):
        return None


def kind_of(dtype: object, shape: object) -> TensorKind:
    """The kind of a type and a shape; raises BadHeader where one of them is none."""
    bits = ELEMENT_BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None or not isinstance(dtype, str):
        raise BadHeader(f"has the unknown type {str(dtype)[:40]!r}")
    if type(shape) is not list or len(shape) > _MAX_RANK or not all_counts(shape):
        raise BadHeader("has a shape that is not a list of whole numbers")
    num_bits = prod(shape) * bits
    # Also of an empty tensor, so that no reader overflows on the way to its zero.
    if (num_bits or prod(size or 1 for size in shape) * bits) >= _MAX_BITS:
        raise BadHeader("has a shape of more elements than a file can hold")
    if num_bits % 8:
        raise BadHeader(f"is {dtype} {shape}, which is no whole number of bytes")
    return TensorKind(dtype, tuple(shape), num_bits // 8)


def all_counts(values: list[Any]) -> bool:
    """Whether all are whole numbers that a file may hold."""
    for value in values:  # noqa: SIM110  it runs for every tensor, and all() takes twice as long
        if type(value) is not int or not 0 <= value <= _MAX_ELEMENTS:
            return False
    return True


def entries(raw: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the names of a header's tensors and what it says of each, in any spelling.

    Raises BadHeader at the first byte that no header has there.
    """
    if not raw.startswith(b"{"):
        raise BadHeader("has a header that is not a JSON object")
    _require_text(raw)
    names: set[str] = set()
    read, after = 1, _EMPTY.match(raw, 1)
    mark = b"," if after is None else b"}"
    while mark == b",":
        name, read = _key(raw, read)
        if name in names:
            raise _unreadable(f"duplicate key {name[:80]!r}")
        names.add(name)
        if len(names) > MAX_TENSORS:
            raise BadHeader(f"has more than {MAX_TENSORS:,} tensors in its header")
        if name == _METADATA:
            read = _metadata_end(raw, read)
        else:
            entry, read = _entry(raw, name, read)
            yield name, entry
        after = _AFTER.match(raw, read)
        if after is None:
            raise _unreadable(f"no comma or brace at byte {read:,}")
        mark, read = after[1], after.end()
    if not _REST.match(raw, after.end() if after else read):
        raise _unreadable("more behind its end")


def _require_text(raw: bytes) -> None:
    """Raise BadHeader where the bytes are no UTF-8; a piece of them is decoded at a time."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(raw), _PIECE_BYTES):
            decoder.decode(raw[start : start + _PIECE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise _unreadable(f"{error.reason} in its UTF-8") from None


def _unreadable(why: str) -> BadHeader:
    return BadHeader(f"has a header that is not readable as JSON: {why}"[:160])


def _key(raw: bytes, read: int) -> tuple[str, int]:
    found = _KEY.match(raw, read)
    if found is None:
        raise _unreadable(f"no name and colon at byte {read:,}")
    if found.end(1) - found.start(1) > MAX_NAME_BYTES:
        raise BadHeader(f"has a name of more than {MAX_NAME_BYTES:,} bytes in its header")
    name = _text(found[1])
    if not name.isascii() and _SURROGATE.search(name):
        raise BadHeader(
            f"{name[:120]} has half a surrogate pair in its name, which is no Unicode text"
        )
    return name, found.end()


def _text(written: bytes) -> str:
    try:
        text: str = json.loads(b'"%b"' % written) if b"\\" in written else written.decode()
    except ValueError as error:
        raise _unreadable(str(error)) from None
    return text


def _metadata_end(raw: bytes, read: int, *, most_bytes: int = sys.maxsize) -> int:
    """Where the metadata ends; it is looked at, and nothing of it is kept."""
    problem = BadHeader("has __metadata__ that is not a mapping of text to text")
    if raw[read : read + 1] != b"{":
        raise problem
    last = min(len(raw), read + most_bytes)
    after = _EMPTY.match(raw, read + 1, last)
    read += 1
    num_pairs = 0
    while after is None or after[0].endswith(b","):
        found = _PAIR.match(raw, read, last)
        after = _AFTER.match(raw, found.end(), last) if found else None
        if after is None:
            raise problem
        num_pairs += 1
        if num_pairs > MAX_METADATA:
            raise BadHeader(f"has more than {MAX_METADATA:,} entries of __metadata__")
        read = after.end()
    return after.end()


def _entry(raw: bytes, name: str, read: int) -> tuple[Any, int]:
    """What stands behind a name: a mapping of moderate length, or nothing that a header has."""
    found = _ENTRY.match(raw, read)
    if found is None:
        raise BadHeader(f"{name[:120]} does not have exactly dtype, shape and data_offsets")
    text = found[0].decode()
    is_plain = text.count('"') == _QUOTES
    try:
        # The text ends with the brace that opens it, so there is nothing behind the value.
        pairs = _PAIRS.raw_decode(text)[0] if not is_plain else ()
        entry = _ANY.raw_decode(text)[0] if is_plain else dict(pairs)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"{name[:60]}: {error}") from None
    if pairs and len(pairs) != len(entry):
        raise _unreadable(f"duplicate key in {name[:80]!r}")
    return entry, found.end()


def sound_entry(entry: Any) -> tuple[TensorKind, int]:
    """The kind of one tensor and where it begins; raises BadHeader where it is not sound."""
    if type(entry) is not dict or entry.keys() != _KEYS:
        raise BadHeader("does not have exactly dtype, shape and data_offsets")
    offsets = entry["data_offsets"]
    kind = kind_of(entry["dtype"], entry["shape"])
    if type(offsets) is not list or len(offsets) != _OFFSETS or not all_counts(offsets):
        raise BadHeader("has data_offsets that are not two whole numbers")
    begin, end = offsets
    if end - begin != kind.num_bytes:
        raise BadHeader(
            f"takes {end - begin:,} bytes, which is not {kind.dtype} {list(kind.shape)}"
        )
    return kind, begin
