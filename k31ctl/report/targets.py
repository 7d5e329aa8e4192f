"""Where a result goes beside the terminal, each form of it to a place of its own."""

from collections.abc import Callable, Mapping
from pathlib import Path

from k31ctl.errors import UsageError
from k31ctl.report.files import STANDARD_OUTPUT, require_writable, write_all
from k31ctl.values import frozen


def require_apart(*paths: Path | None, as_json: bool) -> None:
    """Raise UsageError where two answers would go to one place; ``--json`` has standard output."""
    given = [STANDARD_OUTPUT] if as_json else []
    for path in paths:
        if path in given:
            raise UsageError(
                "two answers cannot go to one place",
                where=str(path),
                remedy="give --json and each option that takes a file a place of its own",
            )
        if path is not None:
            given.append(path)


@frozen
class Targets:
    """Where a result goes beside the terminal; None is nowhere, ``-`` instead of the summary."""

    csv: Path | None = None
    markdown: Path | None = None
    junit: Path | None = None
    html: Path | None = None

    def require_one(self, *, as_json: bool) -> None:
        """Raise UsageError where two results would go to one place, InputError where none can."""
        paths = (self.csv, self.markdown, self.junit, self.html)
        require_apart(*paths, as_json=as_json)
        require_writable(*paths)

    @property
    def is_free(self) -> bool:
        """Whether standard output is left for the summary."""
        return STANDARD_OUTPUT not in (self.csv, self.markdown, self.junit, self.html)

    def write(self, texts: Mapping[str, Callable[[], str]]) -> bool:
        """Make and write what is asked for; returns whether standard output is still free."""
        paths = {name: getattr(self, name) for name in texts}
        write_all({path: texts[name]() for name, path in paths.items() if path is not None})
        return self.is_free
