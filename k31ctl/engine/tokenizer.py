"""The checkpoint's own tokenizer, without running any code that comes with it.

Format: ``tiktoken.model`` holds the ranks, a line each; the ids behind them are special, and
named in ``tokenizer_config.json``. Source of the pattern and of both limits: tokenization_kimi.py.
"""

import base64
import binascii
import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from k31ctl.core.chat_format import segments as marks
from k31ctl.core.chat_format.output_parser import Marker
from k31ctl.core.chat_format.segments import Segment
from k31ctl.errors import InputError
from k31ctl.outside_json import parsed

if TYPE_CHECKING:
    import tiktoken

VOCABULARY_FILE: Final = "tiktoken.model"
CONFIG_FILE: Final = "tokenizer_config.json"
NUM_SPECIAL: Final = 256
PATTERN: Final = "|".join(
    (
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)
_MOST_BYTES: Final = 64 * 2**20
_MOST_AT_ONCE: Final = 400_000
_MOST_IN_A_RUN: Final = 25_000
_RUN: Final = re.compile(r"\s+|\S+")
_MARKERS: Final = {
    marks.OPEN: Marker.OPEN,
    marks.CLOSE: Marker.CLOSE,
    marks.SEP: Marker.SEPARATOR,
    marks.END_OF_MESSAGE: Marker.END_OF_MESSAGE,
}


class Tokenizer:
    """Text to ids and back; markers by id."""

    def __init__(self, encoding: "tiktoken.Encoding", special: Mapping[str, int]) -> None:
        self._encoding = encoding
        self._first_special = min(special.values())
        self.num_ids = self._first_special + len(special)
        self.markers = {special[name]: marker for name, marker in _MARKERS.items()}
        self.end_of_message = special[marks.END_OF_MESSAGE]
        self.media_pad = special.get(marks.MEDIA_PAD)

    def encode_text(self, text: str) -> list[int]:
        """Ids of text in which nothing is special; unpaired surrogates become U+FFFD."""
        if not text.isascii():
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return [i for piece in _pieces(text) for i in self._encoding.encode_ordinary(piece)]

    def encode_prompt(
        self, segments: Iterable[Segment], *, image_tokens: Sequence[int] = ()
    ) -> list[int]:
        """Ids of a prompt, each piece on its own, with as many pads as each image has tokens."""
        counts = iter(image_tokens)
        ids: list[int] = []
        for text, is_special in segments:
            if not is_special:
                ids += self.encode_text(text)
                continue
            for found in self._encoding.encode(text, allowed_special="all"):
                ids += [found] * (next(counts) if found == self.media_pad else 1)
        return ids

    def is_special(self, token: int) -> bool:
        """Whether an id stands for no text."""
        return token >= self._first_special

    def bytes_of(self, token: int) -> bytes:
        """The bytes of one id; a special one has its name's."""
        return self._encoding.decode_single_token_bytes(token)


class TextStream:
    """Ids of one answer to text and markers; a character that spans ids comes whole."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, token: int) -> Iterator[str | Marker]:
        """Yield what one more id brings; special ids that are no markers bring nothing."""
        if not self._tokenizer.is_special(token):
            if text := self._decoder.decode(self._tokenizer.bytes_of(token)):
                yield text
            return
        yield from self.finish()
        if token in self._tokenizer.markers:
            yield self._tokenizer.markers[token]

    def finish(self) -> Iterator[str]:
        """Yield U+FFFD for a character that stays unfinished."""
        if text := self._decoder.decode(b"", final=True):
            yield text
        self._decoder.reset()


def load_tokenizer(folder: Path, *, num_ids: int | None = None) -> Tokenizer:
    """Return the tokenizer of a checkpoint; ``num_ids`` is its config's vocab_size, where known.

    Raises ``InputError`` where a file is missing, damaged, or lacks what a chat needs.
    """
    import tiktoken  # noqa: PLC0415  (large, and only a service needs it)

    ranks = _ranks(folder / VOCABULARY_FILE)
    if num_ids is not None and len(ranks) != num_ids - NUM_SPECIAL:
        problem = f"it has {len(ranks):,} tokens instead of {num_ids - NUM_SPECIAL:,}"
        raise _damaged(folder / VOCABULARY_FILE, problem)
    special = _special(folder / CONFIG_FILE, first=len(ranks))
    encoding = tiktoken.Encoding(
        "checkpoint", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special
    )
    return Tokenizer(encoding, special)


def _ranks(path: Path) -> dict[bytes, int]:
    """The ranks, proven whole: a gap or a missing byte ends an encoder without a catchable error.

    tiktoken's own loader is not used, since it keeps a copy by the path's name and would not see
    that the file has changed.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(_read(path).splitlines(), start=1):
        try:
            token, rank = line.split()
            ranks[base64.b64decode(token, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise _damaged(path, f"line {number} is no token and rank") from None
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise _damaged(path, "its ranks are not 0, 1, 2 ... each once")
    if missing := [byte for byte in range(256) if bytes([byte]) not in ranks]:
        raise _damaged(path, f"it has no token for byte {missing[0]}")
    return ranks


def _special(path: Path, *, first: int) -> dict[str, int]:
    behind = first + NUM_SPECIAL
    names = {index: f"<|reserved_token_{index}|>" for index in range(first, behind)}
    for key, entry in _added(path).items():
        content = entry.get("content") if isinstance(entry, dict) else None
        if not key.isdecimal() or int(key) not in names or not isinstance(content, str):
            raise _damaged(
                path, f"added_tokens_decoder names {key!r}, outside {first} to {behind - 1}"
            )
        names[int(key)] = content
    special = {name: index for index, name in names.items()}
    if len(special) != len(names):
        raise _damaged(path, "two special tokens have one name")
    if missing := [name for name in _MARKERS if name not in special]:
        raise _damaged(path, f"it names no token {missing[0]}, which Kimi K3's chat format needs")
    return special


def _added(path: Path) -> dict[str, Any]:
    try:
        config = parsed(_read(path))
    except ValueError:
        raise _damaged(path, "it is not JSON") from None
    added = config.get("added_tokens_decoder") if isinstance(config, dict) else None
    if not isinstance(added, dict):
        raise _damaged(path, "it has no object added_tokens_decoder")
    return added


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        what = f"cannot be read: {error.strerror or error}"
        remedy = "fetch the checkpoint's tokenizer files"
        raise InputError(what, where=str(path), remedy=remedy) from None
    if len(data) > _MOST_BYTES:
        raise _damaged(path, f"it is larger than {_MOST_BYTES:,} bytes")
    return data


def _damaged(path: Path, problem: str) -> InputError:
    remedy = "fetch this file again, from the same revision as the weights"
    return InputError(f"is not a tokenizer of Kimi K3: {problem}", where=str(path), remedy=remedy)


def _pieces(text: str) -> Iterator[str]:
    """Text cut as the release cuts it, since very long pieces end an encoder."""
    for start in range(0, len(text), _MOST_AT_ONCE):
        part = text[start : start + _MOST_AT_ONCE]
        begin = 0
        for run in _RUN.finditer(part) if len(part) > _MOST_IN_A_RUN else ():
            for end in range(run.start() + _MOST_IN_A_RUN, run.end(), _MOST_IN_A_RUN):
                yield part[begin:end]
                begin = end
        yield part[begin:]
