"""A small tokenizer in the files of the release: byte pairs in tiktoken's form, and marked ids.

The 256 bytes come first, then what makes the words of the chat format single tokens; the ids behind
them are the release's own special tokens, at the same distances.
"""

import base64
import json
from typing import Any, Final

NUM_SPECIAL: Final = 256
BOS, END_OF_MESSAGE, MEDIA_PAD, PAD = 0, 2, 21, 255
_SPECIAL: Final = {
    BOS: "[BOS]",
    1: "[EOS]",
    END_OF_MESSAGE: "<|end_of_msg|>",
    3: "<|open|>",
    4: "<|close|>",
    5: "<|sep|>",
    6: "[start_header_id]",
    7: "[end_header_id]",
    9: "[EOT]",
    18: "<|media_begin|>",
    19: "<|media_content|>",
    20: "<|media_end|>",
    MEDIA_PAD: "<|media_pad|>",
    65: "<osagent_mode>",
    254: "[UNK]",
    PAD: "[PAD]",
}
# A decoder that drops special tokens still prints these.
_ORDINARY: Final = ("<|open|>", "<|close|>", "<|sep|>")
_WORDS: Final = (
    *("message", "think", "response", "tools", "call", "argument"),
    *(" role", " user", "assistant", "system", " the", " of", " and", " is", " to"),
)


def ranks() -> list[bytes]:
    """Every token in the order of its id, each the pair of an earlier one and one byte."""
    found = [bytes([byte]) for byte in range(256)]
    for word in _WORDS:
        encoded = word.encode()
        for end in range(2, len(encoded) + 1):
            if encoded[:end] not in found:
                found.append(encoded[:end])
    return found


def vocab_size() -> int:
    """Ids that the embedding has to hold."""
    return len(ranks()) + NUM_SPECIAL


def special_id(offset: int) -> int:
    """The id of a special token, by its distance from the first."""
    return len(ranks()) + offset


def tokenizer_files() -> dict[str, str]:
    """The two files of the tokenizer, by name."""
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(ranks())]
    config: dict[str, Any] = {
        "added_tokens_decoder": {
            str(special_id(offset)): {
                "content": name,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": name not in _ORDINARY,
            }
            for offset, name in _SPECIAL.items()
        },
        "additional_special_tokens": [
            _SPECIAL[offset] for offset in _SPECIAL if _SPECIAL[offset].startswith("<|")
        ],
        "bos_token": _SPECIAL[BOS],
        "eos_token": "[EOS]",
        "pad_token": _SPECIAL[PAD],
        "unk_token": "[UNK]",
        "tokenizer_class": "TikTokenTokenizer",
    }
    text = json.dumps(config, indent=2, sort_keys=True) + "\n"
    return {"tiktoken.model": "".join(lines), "tokenizer_config.json": text}
