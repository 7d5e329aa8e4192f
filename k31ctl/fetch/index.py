"""Which files make up a checkpoint, and which tensor its index puts where."""

import stat
from collections import Counter
from collections.abc import Iterable
from itertools import repeat
from pathlib import Path
from typing import Any, Final

from k31ctl.core.found_tensors import FoundTensor, names_of
from k31ctl.errors import InputError
from k31ctl.fetch.index_text import parsed
from k31ctl.regular_file import read_regular
from k31ctl.units import counted
from k31ctl.values import frozen

INDEX_NAME: Final = "model.safetensors.index.json"
_MAX_INDEX_BYTES: Final = 512 * 2**20
_MAX_SIZE: Final = 2**63


@frozen
class CheckpointFiles:
    """The files to read, in order, and the tensor index where there is one."""

    files: tuple[str, ...]
    weight_map: dict[str, str] | None
    total_size: int | None
    warnings: tuple[str, ...]


def checkpoint_files(folder: Path) -> CheckpointFiles:
    """Return the files that the index names, or all safetensors files where there is none.

    Raises InputError where the folder cannot be read or holds no safetensors file.
    """
    listed = _listed(folder)
    present = tuple(name for name in listed if name.endswith(".safetensors"))
    if INDEX_NAME in listed:
        return _indexed(folder / INDEX_NAME, present)
    if not present:
        raise InputError(
            "no safetensors file here",
            where=str(folder),
            remedy="name the folder that holds the checkpoint's *.safetensors files",
        )
    warnings = [f"{len(present)} files and no {INDEX_NAME}: every file is read"]
    return CheckpointFiles(
        files=present,
        weight_map=None,
        total_size=None,
        warnings=tuple(warnings if len(present) > 1 else ()),
    )


class IndexCheck:
    """Holds what headers say against the index; what is left in the end was in no header."""

    def __init__(self, weight_map: dict[str, str]) -> None:
        self._left = weight_map

    def problems_of(self, file: str, tensors: Iterable[FoundTensor]) -> list[str]:
        """What the index says otherwise about one file's tensors."""
        moved: list[str] = []
        unnamed: list[str] = []
        names = names_of(tensors)
        places = list(map(self._left.pop, names, repeat(None)))
        if places.count(file) == len(places):
            return []
        for name, put in zip(names, places, strict=True):
            if put == file:
                continue
            (unnamed if put is None else moved).append(name)
        return [
            f"holds {len(names):,} tensors that the index {what}, the first: {names[0][:120]}"
            for names, what in ((moved, "puts elsewhere"), (unnamed, "does not name here"))
            if names
        ]

    def leftovers(self) -> list[tuple[str, str]]:
        """Files and what the index promised of them that no header held."""
        first: dict[str, str] = {}
        for name, file in self._left.items():
            first.setdefault(file, name)
        counts = Counter(self._left.values())
        return [
            (file, f"lacks {counted(counts[file], 'tensor')} of the index, the first: {name[:120]}")
            for file, name in sorted(first.items())
        ]


def _listed(folder: Path) -> tuple[str, ...]:
    """The names in a folder, sorted."""
    try:
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise InputError(
                "not a folder", where=str(folder), remedy="name the folder of a checkpoint"
            )
        return tuple(sorted(place.name for place in folder.iterdir()))
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be read: {str(getattr(error, 'strerror', None) or error).lower()}",
            where=str(folder)[:200],
            remedy="name the folder of a checkpoint; hub repositories come with fetch",
        ) from None


def _indexed(path: Path, present: tuple[str, ...]) -> CheckpointFiles:
    document = _document(path)
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise _bad("has no weight_map", path)
    try:
        files = Counter(weight_map.values())
    except TypeError:
        raise _bad("names a file that is not text", path) from None
    for file in files:
        if (
            not isinstance(file, str)
            or not file.endswith(".safetensors")
            or Path(file).name != file
            or "\0" in file
        ):
            raise _bad(f"names the file {str(file)[:80]!r}, which is not one beside it", path)
    extra = [name for name in present if name not in files]
    warnings = []
    if extra:
        warnings.append(f"{len(extra)} files that the index does not name are not read: {extra[0]}")
    return CheckpointFiles(
        files=tuple(sorted(files)),
        weight_map=weight_map,
        total_size=_total_size(document.get("metadata")),
        warnings=tuple(warnings),
    )


def _total_size(metadata: object) -> int | None:
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(size, float) and size.is_integer():
        size = int(size)
    return size if isinstance(size, int) and 0 <= size < _MAX_SIZE else None


def _document(path: Path) -> dict[str, Any]:
    try:
        document = parsed(read_regular(path, most_bytes=_MAX_INDEX_BYTES))
    except OSError as error:
        raise _bad(f"cannot be read: {error.strerror}", path) from None
    except RecursionError:
        raise _bad("is nested too deeply", path) from None
    except ValueError as error:
        raise _bad(f"is not readable as JSON: {error}"[:160], path) from None
    if not isinstance(document, dict):
        raise _bad("is not a JSON object", path)
    return document


def _bad(what: str, path: Path) -> InputError:
    return InputError(
        f"the index {what}", where=str(path), remedy="fetch the index of the release again"
    )
