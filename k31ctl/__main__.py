"""``python -m k31ctl``, and what the installed program calls."""

import sys

_INTERRUPTED = 130


def start() -> None:
    """Run the program; an interrupt while it is still being imported ends it without a word."""
    try:
        from k31ctl.cli.main import main  # noqa: PLC0415  inside the try: importing takes a while
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    main()


if __name__ == "__main__":
    start()
