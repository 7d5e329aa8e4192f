"""The text that servers tell their metrics in, and whose names are known."""

import re
from typing import Final

_LINE: Final = re.compile(r"([A-Za-z_:][\w:]*)(?:\{.*\})?\s+(\S+)(?:\s+-?\d+)?\s*")
_MOST_LINES: Final = 200_000
ENGINES: Final = {"vllm": "vllm:", "sglang": "sglang:", "tokenspeed": "tokenspeed:"}


def parse_metrics(text: str) -> dict[str, float]:
    """Sum the samples of each name over its labels; lines that are none are passed over."""
    found: dict[str, float] = {}
    for line in text.split("\n", _MOST_LINES)[:_MOST_LINES]:
        if line.startswith("#"):
            continue
        sample = _LINE.fullmatch(line)
        if sample is None or sample[1].endswith("_bucket"):
            continue
        try:
            found[sample[1]] = found.get(sample[1], 0.0) + float(sample[2])
        except ValueError:
            continue
    return found
