"""The value of a flag from a word, as the engine's own reader of that type makes it.

A type that is not known here takes every word as it is: what the engine then says is not foretold.
"""

import json
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from k31ctl.core.flags import Flag

_WRAPPED: Final = re.compile(r"(_optional_type|_parse_type)\[(.*)\]")
_OBJECT: Final = re.compile(r"(?s)^\s*{.*}\s*$")
_QUOTED: Final = re.compile(r'("(?:[^"\\]|\\.)*")')
_BARE_NUMBER: Final = re.compile(r"\b\d+(?:\.\d+)?[kKmMgGtT]\b")
_MAX_UINT16: Final = 0xFFFF
_JSON_TYPES: Final = frozenset(
    {"loads", "json_list_type", "parse_dataclass", "_parse_type", "parse_cuda_graph_config_arg"}
)
_DECIMAL: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_SI: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_IEC: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def flag_value(flag: Flag, word: str, *, engine: str) -> object:
    """Return what the engine makes of one word; ValueError says why it refuses the word."""
    if flag.type == "<lambda>":
        return word.lower().replace("-", "_") if flag.choices else word
    return _read(flag.type, word, engine)


def is_json(flag: Flag) -> bool:
    """Whether the flag takes JSON in one word."""
    found = _WRAPPED.fullmatch(flag.type)
    inner = found[2] if found else flag.type
    return inner in _JSON_TYPES or inner == "union_dict_and_str"


def human_number(word: str, *, engine: str) -> int:
    """Return a whole number that may end in a unit; the engines do not agree on the units.

    vLLM: k m g t are decimal, K M G T are binary. SGLang: k M G T are decimal, Ki Mi Gi Ti binary.
    """
    text = word.strip()
    return _sglang_number(text) if engine == "sglang" else _vllm_number(text)


def _vllm_number(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT])", text)
    if not found:
        return int(text)
    number, unit = found.groups()
    if unit in _DECIMAL:
        return int(float(number) * _DECIMAL[unit])
    if "." in number:
        raise ValueError(f"{unit} is a power of two and takes no decimals; {unit.lower()} does")
    return int(number) * _BINARY[unit]


def _sglang_number(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(Ki|Mi|Gi|Ti|k|M|G|T)", text)
    if not found:
        return int(text)
    number, unit = found.groups()
    if unit in _SI:
        return int(Decimal(number) * _SI[unit])
    if "." in number:
        raise ValueError(f"{unit} is a power of two and takes no decimals; {unit[0]} does")
    return int(number) * _IEC[unit]


def _read(kind: str, word: str, engine: str) -> object:
    found = _WRAPPED.fullmatch(kind)
    if found:
        if found[1] == "_optional_type" and word in ("", "None"):
            return None
        return _read(found[2], word, engine)
    if kind in ("human_readable_int", "human_readable_int_or_auto"):
        if kind.endswith("auto") and word.strip().lower() in ("-1", "auto"):
            return -1
        return human_number(word, engine=engine)
    return _READERS.get(kind, str)(word)


def _json(word: str) -> Any:
    return json.loads(word)


def _object(word: str) -> Any:
    """Read a JSON object in which bare numbers may carry a unit, as vLLM does."""
    parts = _QUOTED.split(word)
    for index in range(0, len(parts), 2):
        parts[index] = _BARE_NUMBER.sub(lambda m: str(_vllm_number(m[0])), parts[index])
    return _mapping("".join(parts))


def _mapping(word: str) -> Any:
    value = json.loads(word)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  the caller catches one kind
    return value


def _object_or_text(word: str) -> Any:
    return json.loads(word) if _OBJECT.match(word) else word


def _truth(word: str) -> bool:
    if word.lower() in ("1", "true", "yes", "on"):
        return True
    if word.lower() in ("0", "false", "no", "off"):
        return False
    raise ValueError("not a truth value")


def _uint16(word: str) -> int:
    value = int(word)
    if not 0 <= value <= _MAX_UINT16:
        raise ValueError(f"not between 0 and {_MAX_UINT16}")
    return value


def _not_empty(word: str) -> str:
    if not word.strip():
        raise ValueError("empty")
    return word


def _graph_backend(word: str) -> str:
    if word == "tc_piecewise":
        raise ValueError("tc_piecewise was removed")
    return word


_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "int": int,
    "float": float,
    "loads": _json,
    "json_list_type": _json,
    "_parse_type": _json,
    "parse_dataclass": _object,
    "parse_cuda_graph_config_arg": _mapping,
    "parse_cuda_graph_backend_arg": _graph_backend,
    "union_dict_and_str": _object_or_text,
    "parse_reasoning_parser": lambda word: "" if word.lower() == "none" else word,
    "nullable_str": lambda word: None if word in ("", "None") else word,
    "str_to_bool": _truth,
    "_uint16": _uint16,
    "_nonempty_str": _not_empty,
    "_parse_int_csv": lambda word: [int(item) for item in word.split(",") if item],
}
