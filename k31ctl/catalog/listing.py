"""Profiles by name: which there are, and one of them as it is written."""

from typing import Any

from k31ctl.catalog.store import Kind, Store, kind_named, read_profile, read_text, unknown_id
from k31ctl.errors import ProfileError
from k31ctl.values import frozen


@frozen
class Listed:
    """One profile in a list."""

    kind: str
    id: str
    name: str
    path: str


@frozen
class Shown:
    """One profile, as its file has it and as it was read."""

    kind: str
    id: str
    path: str
    text: str
    profile: dict[str, Any]

    def as_mapping(self) -> dict[str, Any]:
        """Return all but the text, for documents that hold the profile itself."""
        return {"kind": self.kind, "id": self.id, "path": self.path, "profile": self.profile}


def list_profiles(store: Store, kind: str | None) -> tuple[Listed, ...]:
    """Return every profile, or those of one kind, in the order of kinds and ids."""
    kinds = list(Kind) if kind is None else [kind_named(kind)]
    return tuple(
        Listed(kind=each, id=profile_id, name=_name(read_profile(path)), path=str(path))
        for each in kinds
        for profile_id, path in store.paths(each).items()
    )


def find_profile(store: Store, name: str) -> Shown:
    """Return the profile called ``KIND/ID``, or ``ID`` where only one kind has it."""
    head, slash, tail = name.partition("/")
    kinds = [kind_named(head)] if slash else list(Kind)
    profile_id = tail if slash else head
    holders = [kind for kind in kinds if profile_id in store.paths(kind)]
    if not holders:
        raise unknown_id(
            kinds[0] if slash else "", profile_id, [i for kind in kinds for i in store.ids(kind)]
        )
    if len(holders) > 1:
        raise ProfileError(
            f"more than one profile is called {profile_id!r}",
            where="profiles",
            remedy=f"write {' or '.join(f'{kind}/{profile_id}' for kind in holders)}",
        )
    path = store.paths(holders[0])[profile_id]
    return Shown(
        kind=holders[0],
        id=profile_id,
        path=str(path),
        text=read_text(path),
        profile=read_profile(path),
    )


def _name(profile: dict[str, Any]) -> str:
    name = profile.get("name", "")
    return name if isinstance(name, str) else ""
