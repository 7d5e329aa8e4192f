"""``python -m k31ctl``."""

from k31ctl.cli.main import main

main()
