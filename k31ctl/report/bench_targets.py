"""Where a measurement goes beside the terminal."""

from collections.abc import Callable, Mapping
from pathlib import Path

from k31ctl.errors import UsageError
from k31ctl.report.files import STANDARD_OUTPUT, write_all
from k31ctl.values import frozen


@frozen
class Targets:
    """Where a result goes beside the terminal; None is nowhere, ``-`` instead of the summary."""

    csv: Path | None
    markdown: Path | None
    junit: Path | None
    html: Path | None

    def require_one(self, *, as_json: bool) -> None:
        """Raise UsageError where two results would go to standard output."""
        paths = (self.csv, self.markdown, self.junit, self.html)
        if paths.count(STANDARD_OUTPUT) + as_json > 1:
            raise UsageError(
                "two results cannot both be standard output",
                where="--json, --csv, --markdown, --junit, --html",
                remedy="give each of them its own file",
            )

    def write(self, texts: Mapping[str, Callable[[], str]]) -> bool:
        """Make and write what is asked for; returns whether standard output is still free."""
        paths = {name: getattr(self, name) for name in texts}
        write_all({path: texts[name]() for name, path in paths.items() if path is not None})
        return STANDARD_OUTPUT not in paths.values()
