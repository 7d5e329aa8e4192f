"""Which release of the program this is."""

import sys

from k31ctl import __version__


def show_version() -> None:
    """Write the program's name and version."""
    sys.stdout.write(f"k31ctl {__version__}\n")
