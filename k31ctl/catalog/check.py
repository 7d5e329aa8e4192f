"""Which profile files are sound, and what is wrong with the others."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from k31ctl.catalog.engines import load_draft, load_engine
from k31ctl.catalog.flags import load_flags
from k31ctl.catalog.hardware import load_node
from k31ctl.catalog.licences import load_licence
from k31ctl.catalog.measurements import check_table
from k31ctl.catalog.models import load_model_profile
from k31ctl.catalog.prices import load_price_list
from k31ctl.catalog.recipes import load_recipe_book
from k31ctl.catalog.speed import load_speed_profile
from k31ctl.catalog.storage import load_startup, load_storage
from k31ctl.catalog.store import Kind, Store, files_in, kind_named
from k31ctl.errors import ProfileError
from k31ctl.values import frozen

# A kind that is not listed is checked for its syntax, its id and its source alone.
_LOADERS: Final[dict[Kind, Callable[[Store, str], object]]] = {
    Kind.MODELS: load_model_profile,
    Kind.HARDWARE: load_node,
    Kind.ENGINES: load_engine,
    Kind.DRAFTS: load_draft,
    Kind.SPEED: load_speed_profile,
    Kind.MEASUREMENTS: check_table,
    Kind.PRICES: load_price_list,
    Kind.STORAGE: load_storage,
    Kind.STARTUP: load_startup,
    Kind.LICENCES: load_licence,
    Kind.FLAGS: load_flags,
    Kind.RECIPES: load_recipe_book,
}


@frozen
class ProfileFinding:
    """The first thing that is wrong with one file."""

    message: str
    where: str
    remedy: str


@frozen
class CheckResult:
    """How many files were read, and a finding for each bad one."""

    num_files: int
    findings: tuple[ProfileFinding, ...]

    @property
    def exit_code(self) -> int:
        """0 where every file is sound, else that of a profile error."""
        return ProfileError.exit_code if self.findings else 0


def check_profiles(folders: Sequence[Path], paths: Sequence[Path] = ()) -> CheckResult:
    """Read every profile under ``folders``, or only ``paths``: files, or folders of profiles."""
    files = [
        file
        for place in (paths or folders)
        for file in ([place] if place.is_file() else _files_under(place))
    ]
    checked = [_check(file, folders) for file in files]
    return CheckResult(
        num_files=len(files), findings=tuple(bad for bad in checked if bad is not None)
    )


def _files_under(folder: Path) -> list[Path]:
    found = [file for kind in Kind for file in files_in(folder, kind)]
    if not found:
        raise ProfileError(
            "no profiles here",
            where=str(folder),
            remedy=f"name a profile, or a folder that holds one of {', '.join(Kind)}",
        )
    return found


def _check(file: Path, folders: Sequence[Path]) -> ProfileFinding | None:
    try:
        kind = kind_named(file.resolve().parent.name)
        store = Store((*folders, file.resolve().parent.parent))
        _LOADERS.get(kind, _load_plain(kind))(store, file.stem)
    except ProfileError as error:
        return ProfileFinding(message=error.what, where=_place(error, file), remedy=error.remedy)
    return None


def _place(error: ProfileError, file: Path) -> str:
    return error.where if file.name in error.where else str(file)


def _load_plain(kind: Kind) -> Callable[[Store, str], object]:
    def load(store: Store, profile_id: str) -> object:
        raw, where = store.load(kind, profile_id)
        if not raw.keys() & {"source", "sources"}:
            raise ProfileError("missing key source", where=where, remedy="cite a url and a date")
        return raw

    return load
