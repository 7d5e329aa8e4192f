"""The largest and smallest numbers that are taken; options and functions refuse what is beyond."""

from typing import Final

MOST_CELLS: Final = 10_000
MOST_ENTRIES: Final = 1_000
MOST_NODES: Final = 64
MOST_ACCEPTED: Final = 65.0
MOST_RATE: Final = 1e6
LEAST_RATE: Final = 1e-6
LEAST_USD: Final = 1e-6
MOST_USD_PER_HOUR: Final = 10_000.0
MOST_USD: Final = 1e9
MOST_USD_PER_KWH: Final = 100.0
MOST_LINK_BYTES_PER_S: Final = 1e13
