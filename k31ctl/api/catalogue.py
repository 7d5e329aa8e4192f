"""Profiles: what there is to plan with, and whether it is sound."""

from collections.abc import Sequence
from pathlib import Path

from k31ctl.api.given import Folders, paths_of, store_of
from k31ctl.catalog.check import CheckResult
from k31ctl.catalog.check import check_profiles as checked
from k31ctl.catalog.listing import Listed, Shown, find_profile, list_profiles
from k31ctl.catalog.store import default_folders


def profiles(kind: str | None = None, *, folders: Folders = ()) -> tuple[Listed, ...]:
    """Return what is known, of every kind or of one such as ``models`` or ``hardware``.

    ``folders`` hold profiles that go before ours. Raises UsageError for an unknown kind.

    >>> "8x-b300" in [each.id for each in profiles("hardware")]
    True
    """
    return list_profiles(store_of(folders), kind)


def profile(name: str, *, folders: Folders = ()) -> Shown:
    """Return one profile by KIND/ID or by ID; raises ProfileError where there is none.

    >>> profile("hardware/8x-b300").profile["num_gpus"]
    8
    """
    return find_profile(store_of(folders), name)


def check_profiles(
    paths: str | Path | Sequence[str | Path] = (), *, folders: Folders = ()
) -> CheckResult:
    """Return which profiles are sound, and the first bad key of each that is not.

    ``paths`` are files or folders to check instead of all.

    >>> check_profiles(["/etc/hosts"]).findings[0].remedy != ""
    True
    """
    return checked(default_folders(paths_of("folders", folders)), paths_of("paths", paths))
