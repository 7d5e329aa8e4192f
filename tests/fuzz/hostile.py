"""Real documents, damaged: the bytes of a file that somebody might have.

A document is damaged where its structure is (a value deleted, of another kind, far too large, said
twice), a text where its lines are, and any bytes are cut short, spoilt or packed. What is chosen
comes from a function, ``choose(n)`` from 0 to n - 1, so that a search can guide it.
"""

import gzip
import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final, TypeVar

T = TypeVar("T")
Choose = Callable[[int], int]

_RAW: Final = "\x02raw:"
_END: Final = "\x03"
_TWICE: Final = "\x02twice"
_DEEP: Final = 20_000


def _raw(text: str) -> str:
    """A value that stands in the document as it is spelt here."""
    return _RAW + text + _END


VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64, 10**19, 0.5, -0.5,
    1e-320, 1e308,
    *map(_raw, ("NaN", "Infinity", "-Infinity", "1e400", "-0", "-0.0", "1E5", "0x10", "1_000")),
    _raw("1" + "0" * 400), _raw("-1" + "0" * 400), _raw("1" + "0" * 5000),
    _raw("[" * _DEEP + "]" * _DEEP), _raw('{"a":' * _DEEP + "1" + "}" * _DEEP),
    "", " ", "x", "\0", "\n", "\ud800", "\u202e", "\U0001f98a" * 3, "ß", "-", "--", "/", "..",
    "../../etc/passwd", "/dev/zero",
    "NaN", "1e999", "-1", "0", "true", "null", "1 TB/s", "9" * 5000,
    "x" * 70_000, "%s{0}${HOME}`id`", "<script>", "2026-02-30",
    [], {}, [[]], [None], [1] * 3000, {"": None}, {"x": {}}, [{}], {"x" * 3000: 1},
)  # fmt: skip
PIECES: Final = (
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\r", b"\n", b"\n\n", b"\t", b" " * 5000,
    b'"', b"'", b"`", b"\\", b"\\\n", b"{", b"}", b"[", b"]", b"(", b")", b"<", b">", b"|", b"&",
    b"#", b";", b":", b": ", b",", b"- ", b"-", b"--", b"=", b"$", b"${", b"$(", b"$((",
    b"<<EOF\n", b"%", b"*", b"*a", b"&a ", b"&a [*a]", b"!!python/object/apply:os.system [id]",
    b"<<: ", b"? ", b"---\n", b"...\n", b"|\n", b">-\n", b"NaN", b"1e400", b"-1", b"0", b"9" * 400,
    b"9" * 5000, b"null", b"~", b"data: ", b"data", b": x\n", b"event: error\n", b"[DONE]",
    b"[" * _DEEP, b"{" * 3000, b"x" * 70_000, b"for i in a; do\n", b"if x; then\n", b"esac\n",
    b"case x in\n", b"[Service]\n", b"#SBATCH -N 2\n", "\U0001f98a\u202e".encode(), b"le=\"+Inf\"",
    b"{{", b"}}", b"{{ x }}",
)  # fmt: skip


def one(choose: Choose, options: Sequence[T]) -> T:
    """One of them; a copy, since it may be damaged further."""
    return deepcopy(options[choose(len(options))])


def _places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value below the root."""
    found: list[tuple[Any, ...]] = []
    steps = node.items() if isinstance(node, dict) else enumerate(node)
    for step, child in steps:
        found.append((*path, step))
        if isinstance(child, dict | list):
            found += _places(child, (*path, step))
    return found


def _at(node: Any, path: Sequence[Any]) -> Any:
    for step in path:
        node = node[step]
    return node


def _spelt(document: Any) -> bytes:
    """The document as JSON, with raw values as they are spelt and keys said twice."""
    text = json.dumps(document, default=lambda day: _raw(str(day)))
    text = text.replace(json.dumps(_TWICE)[1:-1], "")
    raw, end = (re.escape(json.dumps(mark)[1:-1]) for mark in (_RAW, _END))
    spelt = re.sub(f'"{raw}(.*?){end}"', lambda found: str(json.loads(f'"{found[1]}"')), text)
    return spelt.encode("utf-8", "surrogatepass")


def _damage(choose: Choose, document: Any) -> None:  # noqa: C901  one case for each damage
    places = _places(document)
    if not places:
        return
    *way, last = one(choose, places)
    parent = _at(document, way)
    value = one(choose, VALUES)
    match choose(12):
        case 0:
            del parent[last]
        case 1 if isinstance(parent, dict):
            parent[f"{last}{_TWICE}"] = value
        case 2 if isinstance(parent, dict):
            name = one(choose, ["", "x", "__class__", "\0", "é", str(last).upper()])
            parent[name] = parent.pop(last)
        case 3:
            parent[last] = [parent[last]]
        case 4:
            parent[last] = {"x": parent[last]}
        case 5 if isinstance(parent, list):
            parent[:] = parent[:50] * 40
        case 6:
            parent[last] = deepcopy(_at(document, one(choose, places)))
        case 7 if isinstance(parent[last], str):
            parent[last] += one(choose, [text for text in VALUES if isinstance(text, str)])
        case 8 if isinstance(parent[last], int | float):
            parent[last] = one(choose, [-1, 0, 3, 1e-9, 1e15]) * parent[last]
        case _:
            parent[last] = value


def damaged_document(choose: Choose, seeds: Sequence[Any]) -> bytes:
    """One of the documents with up to three of its values damaged, as JSON."""
    document = one(choose, seeds if choose(20) else VALUES)
    for _ in range(1 + choose(3)):
        if isinstance(document, dict | list):
            _damage(choose, document)
    spelt = _spelt(document)
    return spelt if choose(5) else spoilt(choose, spelt)


def damaged_text(choose: Choose, seeds: Sequence[bytes]) -> bytes:
    """One of the texts with lines left out, doubled or spoilt, and then spoilt as bytes."""
    lines = one(choose, seeds).split(b"\n")
    for _ in range(choose(3)):
        place = choose(len(lines))
        match choose(4):
            case 0 if len(lines) > 1:
                del lines[place]
            case 1:
                lines.insert(place, one(choose, lines))
            case 2:
                lines[place] = one(choose, PIECES) + lines[place]
            case _:
                lines[place] += one(choose, PIECES)
    return spoilt(choose, b"\n".join(lines))


def spoilt(choose: Choose, content: bytes) -> bytes:
    """Bytes with up to three places damaged, cut short, packed or in another encoding."""
    for _ in range(choose(4)):
        start = choose(len(content) + 1)
        end = start + one(choose, [0, 0, 1, 4, 40])
        content = content[:start] + one(choose, PIECES) + content[end:]
    match choose(16):
        case 0:
            return content[: choose(len(content) + 1)]
        case 1:
            return gzip.compress(content + bytes(1 << 16), mtime=0)
        case 2:
            return content.decode("utf-8", "replace").encode("utf-16")
        case 3:
            return content.replace(b"\n", b"\r\n")
        case 4:
            return content.replace(b"\n", b" ")
        case _:
            return content
