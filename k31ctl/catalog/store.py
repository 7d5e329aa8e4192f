"""Where profiles are: the packaged ones, or the checkout's, and the user's folders on top.

A folder holds one folder per kind, and each file there is named for the ``id`` inside it. A later
folder replaces a profile of an earlier one whole; nothing is merged. Files are YAML, or JSON where
a program wrote them: that is read ten times as fast.
"""

import difflib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import k31ctl
from k31ctl.catalog.json_profile import parse_json
from k31ctl.catalog.yaml_text import parse_yaml
from k31ctl.errors import ProfileError

Decoded = TypeVar("Decoded")

_MAX_BYTES: Final = 4 * 2**20


class Kind(StrEnum):
    """What a profile describes; also the name of the folder that holds it."""

    MODELS = "models"
    HARDWARE = "hardware"
    ENGINES = "engines"
    DRAFTS = "drafts"
    PRICES = "prices"
    SPEED = "speed"
    STORAGE = "storage"
    STARTUP = "startup"
    MEASUREMENTS = "measurements"
    LICENCES = "licences"
    FLAGS = "flags"
    RECIPES = "recipes"


@dataclass(frozen=True, slots=True)
class Store:
    """Folders of profiles; where two hold the same kind and id, the later one counts.

    A store is for one piece of work: what it has decoded it does not read again.
    """

    folders: tuple[Path, ...]
    _decoded: dict[tuple[str, str, object], Any] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def paths(self, kind: str) -> dict[str, Path]:
        """Every id of a kind and the file that counts for it, in the order of the ids."""
        folder_name = kind_named(kind).value
        found: dict[str, Path] = {}
        for folder in self.folders:
            found.update({path.stem: path for path in files_in(folder, folder_name)})
        return dict(sorted(found.items()))

    def ids(self, kind: str) -> list[str]:
        """Every id of a kind, sorted."""
        return list(self.paths(kind))

    def once(
        self, kind: str, profile_id: str, decoded: "Callable[[Store, str], Decoded]"
    ) -> "Decoded":
        """Return what ``decoded`` makes of a profile, made once: a value that nobody changes."""
        key = (kind, profile_id, decoded)
        if key not in self._decoded:
            self._decoded[key] = decoded(self, profile_id)
        found: Decoded = self._decoded[key]
        return found

    def load(self, kind: str, profile_id: str) -> tuple[dict[str, Any], str]:
        """Return a profile as it is written, and the path of its file."""
        paths = self.paths(kind)
        if profile_id not in paths:
            raise unknown_id(kind, profile_id, list(paths))
        return read_profile(paths[profile_id]), str(paths[profile_id])


def default_folders(extra: Sequence[Path] = ()) -> tuple[Path, ...]:
    """Return the folder of the packaged profiles and, on top of it, the given ones."""
    for folder in extra:
        if not any(os.path.isdir(folder / kind) for kind in Kind):  # noqa: PTH112  never raises
            raise ProfileError(
                "no folder of profiles",
                where=str(folder),
                remedy=f"pass --profiles a folder that holds one of {', '.join(Kind)}",
            )
    return (packaged_folder(), *extra)


def packaged_folder() -> Path:
    """Return the folder of the profiles that came with the program."""
    package = Path(k31ctl.__file__).parent
    packed = package / "_profiles"
    return packed if packed.is_dir() else package.parent / "profiles"


def files_in(folder: Path, kind: str) -> list[Path]:
    """Every profile file of a kind in one folder, sorted by name."""
    place = folder / kind
    return sorted((*place.glob("*.yaml"), *place.glob("*.json")))


def kind_named(name: str) -> Kind:
    """Return the kind with this name."""
    try:
        return Kind(name)
    except ValueError:
        raise ProfileError(
            f"no kind of profile is called {name!r}",
            where="profiles",
            remedy=f"use one of {', '.join(Kind)}",
        ) from None


def read_profile(path: Path) -> dict[str, Any]:
    """Return the mapping in one file, whose ``id`` is the file's name."""
    where = str(path)
    parse = parse_json if path.suffix == ".json" else parse_yaml
    raw = parse(_text(path, where), where=where)
    if not isinstance(raw, dict):
        raise ProfileError("not a mapping", where=where, remedy="start the file with id:")
    if raw.get("id") != path.stem:
        raise ProfileError(
            f"id is {raw.get('id')!r}, but the file is named {path.name}",
            where=where,
            remedy=f"write id: {path.stem}, or rename the file",
        )
    return raw


def read_text(path: Path) -> str:
    """Return a profile's own text."""
    return _text(path, str(path))


def unknown_id(kind: str, profile_id: str, known: Sequence[str]) -> ProfileError:
    """Return the error for an id that no file has, with the ids that come close."""
    near = difflib.get_close_matches(profile_id, known, n=3, cutoff=0.4) or list(known)[:10]
    remedy = f"use {' or '.join(near)}" if near else "add one with --profiles DIR"
    return ProfileError(
        f"no profile is called {profile_id[:60]!r}",
        where=f"{kind}/{profile_id[:60]}",
        remedy=f"{remedy}; k31ctl profiles list {kind} shows all",
    )


def _text(path: Path, where: str) -> str:
    if path.exists() and not path.is_file():
        raise ProfileError(
            "not a regular file",
            where=where,
            remedy="name a file; a folder of profiles holds nothing else",
        )
    try:
        with path.open("rb") as stream:
            content = stream.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ProfileError(
                f"larger than {_MAX_BYTES} bytes", where=where, remedy="split or shorten the file"
            )
        return content.decode("utf-8")
    except OSError as error:
        raise ProfileError(
            f"cannot be read: {error.strerror}", where=where, remedy="make the file readable"
        ) from None
    except UnicodeDecodeError:
        raise ProfileError("not UTF-8 text", where=where, remedy="save it as UTF-8") from None
