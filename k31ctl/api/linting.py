"""Launch files that people already have, checked."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from k31ctl.api.given import Folders, checked_range, store_of
from k31ctl.api.hardware import node_named
from k31ctl.core.layout_rules import MOST_RANKS

if TYPE_CHECKING:
    from k31ctl.catalog.store import Store
    from k31ctl.serve.lint import Asked
    from k31ctl.serve.lint_files import LintedFile


def lint(
    given: str | Path | Sequence[str | Path],
    *,
    on: str = "",
    engine: str = "",
    nodes: int | None = None,
    model: str = "",
    readback: str = "",
    ignore: Sequence[str] = (),
    only_launches: bool = False,
    profiles: Folders = (),
) -> "tuple[LintedFile, ...]":
    """Return what is wrong with launch files or folders by name, or with a command by its words.

    Empty text leaves engine, hardware and model to the file. ``readback`` is the URL of a running
    server to ask whether it is this launch. Findings of the rules in ``ignore`` do not count, and
    with ``only_launches`` files that start no engine are passed over. Nothing is run and nothing is
    changed; a file that cannot be read is told in its ``failure``. Raises UsageError where there is
    nothing to check, InputError where no file can be read, ProfileError for a profile that cannot
    be used.

    >>> (found,) = lint(["vllm", "serve", "moonshotai/Kimi-K3", "-tp", "7"], on="8x-b300")
    >>> found.findings[0].severity
    <Severity.ERROR: 'error'>
    """
    from k31ctl.serve.lint_files import lint_files

    store = store_of(profiles)
    wish = lint_wish(
        store,
        on=on,
        engine=engine,
        nodes=nodes,
        model=model,
        readback=readback,
        ignore=ignore,
        only_launches=only_launches,
    )
    words = (given,) if isinstance(given, str) or not isinstance(given, Sequence) else given
    return lint_files(store, [str(word) for word in words], wish)


def lint_wish(
    store: "Store",
    *,
    on: str,
    engine: str,
    nodes: int | None,
    model: str,
    readback: str,
    ignore: Sequence[str],
    only_launches: bool,
) -> "Asked":
    """Return what the caller says about a launch beside its file."""
    from k31ctl.serve.lint import Asked

    checked_range("--nodes", nodes, least=1, most=MOST_RANKS)
    return Asked(
        engine=engine,
        hardware=on,
        node=node_named(store, on) if on else None,
        nodes=nodes or 0,
        model=model,
        readback=readback,
        ignore=tuple(ignore),
        only_launches=only_launches,
    )
