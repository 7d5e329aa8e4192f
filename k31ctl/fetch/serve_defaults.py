"""Where a folder is served unless told otherwise."""

from typing import Final

DEFAULT_HOST: Final = "0.0.0.0"  # noqa: S104  it is there for the machines around
DEFAULT_PORT: Final = 8310
MOST_CONNECTIONS: Final = 256
