"""The sources of a folder's files, kept beside them from run to run."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from k31ctl.fetch.journal import MOST_STATE_BYTES, STATE_FOLDER, replace
from k31ctl.fetch.origins import Origins
from k31ctl.outside_json import parsed
from k31ctl.regular_file import read_regular

_NAME: Final = "origins.json"


def kept_origins(folder: Path) -> Origins:
    """Return the sources that earlier runs noted, which are saved as they change."""
    path = folder / STATE_FOLDER / _NAME

    def save(sources: Mapping[str, list[str]]) -> None:
        with suppress(OSError):
            replace(path, sources, sync=False)

    return Origins(_read(path), save=save)


def _read(path: Path) -> dict[str, list[str]]:
    try:
        found = parsed(read_regular(path, most_bytes=MOST_STATE_BYTES))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        name: [str(source) for source in sources]
        for name, sources in found.items()
        if isinstance(sources, list)
    }
