"""A small tokenizer in the release's two files, for checkpoints of a few megabytes."""

import base64
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final

from k31ctl.engine.tokenizer import CONFIG_FILE, NUM_SPECIAL, VOCABULARY_FILE
from k31ctl.values import frozen

_NUM_BYTES: Final = 256
_NUM_MERGES: Final = 64
# Each word is one piece of the release's pattern, so that every merge can be reached.
_WORDS: Final = (
    *("think", "response", "tools", "call", "argument", "message", "role", "system", "user"),
    *("assistant", "tool", "index", "key", "type", "string", "number", "the", "and", "is", "of"),
    *("to", "in", "that", "for", "with", "as", "on", "it", "you", "what", "can", "this", "are"),
)
_NAMES: Final = {
    0: "[BOS]",
    1: "[EOS]",
    2: "<|end_of_msg|>",
    3: "<|open|>",
    4: "<|close|>",
    5: "<|sep|>",
    6: "[start_header_id]",
    7: "[end_header_id]",
    9: "[EOT]",
    18: "<|media_begin|>",
    19: "<|media_content|>",
    20: "<|media_end|>",
    21: "<|media_pad|>",
    65: "<osagent_mode>",
    254: "[UNK]",
    255: "[PAD]",
}
_NOT_MARKED_SPECIAL: Final = ("<|open|>", "<|close|>", "<|sep|>")


@frozen
class SmallTokenizer:
    """The ids that a config must name for the tokenizer that was written."""

    bos_token_id: int
    eos_token_id: int
    pad_token_id: int
    media_placeholder_token_id: int
    vocab_size: int


def write_small_tokenizer(folder: Path) -> SmallTokenizer:
    """Write the two files, the same bytes each time, and return their ids."""
    tokens = [bytes([byte]) for byte in range(_NUM_BYTES)] + _merges()
    lines = (base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    (folder / VOCABULARY_FILE).write_bytes(b"".join(lines))
    first = len(tokens)
    config = {
        "added_tokens_decoder": {
            str(first + offset): {
                "content": name,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": name not in _NOT_MARKED_SPECIAL,
            }
            for offset, name in _NAMES.items()
        },
        "additional_special_tokens": [],
        "bos_token": "[BOS]",
        "eos_token": "[EOS]",
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "tokenizer_class": "TikTokenTokenizer",
        "auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]},
    }
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
    ids = {name: first + offset for offset, name in _NAMES.items()}
    return SmallTokenizer(
        bos_token_id=ids["[BOS]"],
        eos_token_id=ids["<|end_of_msg|>"],
        pad_token_id=ids["[PAD]"],
        media_placeholder_token_id=ids["<|media_pad|>"],
        vocab_size=first + NUM_SPECIAL,
    )


def _merges() -> list[bytes]:
    """Tokens of more than one byte, most frequent pair first, the smaller one of two alike."""
    words = [[bytes([b]) for b in f"{gap}{word}".encode()] for word in _WORDS for gap in ("", " ")]
    made: list[bytes] = []
    while len(made) < _NUM_MERGES:
        pairs = Counter(pair for word in words for pair in pairwise(word))
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        made.append(left + right)
        words = [_merged(word, left, right) for word in words]
    return made


def _merged(word: list[bytes], left: bytes, right: bytes) -> list[bytes]:
    found: list[bytes] = []
    for part in word:
        if found and found[-1] == left and part == right:
            found[-1] = left + right
        else:
            found.append(part)
    return found
