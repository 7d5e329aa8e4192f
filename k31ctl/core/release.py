"""Order among release numbers, and which known release stands for one that is not known."""

import re
from collections.abc import Sequence
from typing import Final

from k31ctl.values import frozen

_NUMBER: Final = re.compile(
    r"v?(\d+(?:\.\d+)*)(?:[._-]?(a|alpha|b|beta|c|rc|dev|post)[._-]?(\d*))?", re.IGNORECASE
)
_BEFORE_RELEASE: Final = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1}


@frozen
class Chosen:
    """The known release that is used, and how it stands to the one that was asked for."""

    version: str
    relation: str

    @property
    def exact(self) -> bool:
        """Whether it is the release that was asked for, or none was."""
        return self.relation == ""


def release_key(version: str) -> tuple[tuple[int, ...], int, int] | None:
    """Return what orders releases, or None where a version is not a number: ``main``, a branch."""
    found = _NUMBER.fullmatch(version.partition("+")[0])
    if found is None:
        return None
    numbers = [int(part) for part in found[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    stage = _BEFORE_RELEASE.get((found[2] or "").lower(), 1 if found[2] else 0)
    return tuple(numbers), stage, int(found[3] or 0)


def choose_release(version: str, known: Sequence[str]) -> Chosen:
    """Return the release itself, else the newest that is older, else the oldest of the known.

    Without a version: the newest. A version that is not a number counts as newer than all.
    """
    by_age = sorted(known, key=lambda v: release_key(v) or ((), 0, 0))
    if not version:
        return Chosen(version=by_age[-1], relation="")
    wanted = release_key(version)
    if wanted is None:
        return Chosen(version=by_age[-1], relation="not a release")
    for each in reversed(by_age):
        key = release_key(each)
        if key is not None and key <= wanted:
            return Chosen(version=each, relation="" if key == wanted else "newer")
    return Chosen(version=by_age[0], relation="older")
