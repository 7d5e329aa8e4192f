"""The file that says that a folder holds a part of a checkpoint, and which."""

from pathlib import Path
from typing import Any, Final

from k31ctl.errors import InputError, RefusedError
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular

MARKER_NAME: Final = "k31ctl-partial.json"
MARKER_SCHEMA: Final = "k31ctl/partial/v1"
_MAX_BYTES: Final = 1 << 20


def is_marker(path: str) -> bool:
    """Whether a path is that of the mark, on a filesystem that ignores case as well."""
    return path.casefold() == MARKER_NAME


def read_marker(folder: Path) -> dict[str, Any] | None:
    """What a folder says it is a part of; None where it is whole.

    Raises InputError for a marker that cannot be read: the folder is then neither.
    """
    path = folder / MARKER_NAME
    if not path.exists():
        return None
    try:
        document: Any = parsed(read_regular(path, most_bytes=_MAX_BYTES))
        known = document["schema"] == MARKER_SCHEMA
    except (OSError, ValueError, TypeError, KeyError):
        known = False
    if not known:
        raise InputError(
            f"{MARKER_NAME} is not readable", where=str(path), remedy="fetch the part again"
        )
    return dict(document)


def part_of(marker: dict[str, Any] | None) -> str | None:
    """What a mark says in a line: the source, its commit and the selection; None without one."""
    if marker is None:
        return None
    commit = f" at {str(marker['commit'])[:12]}" if marker.get("commit") else ""
    return f"{marker.get('source', 'a checkpoint')}{commit}: {marker.get('selection', '')}"


def require_whole(folder: Path) -> None:
    """Raise RefusedError where a folder holds only a part of a checkpoint."""
    marker = read_marker(folder)
    if marker is not None:
        raise RefusedError(
            f"this is a part of a checkpoint: {marker.get('selection', '')}",
            where=str(folder),
            remedy="fetch the whole checkpoint, or use what takes a part",
            rule="partial-checkpoint",
        )
