"""Licences by what they cover."""

from k31ctl.catalog.decode import decode
from k31ctl.catalog.models import repository
from k31ctl.catalog.store import Kind, Store
from k31ctl.core.licence import Licence


def load_licence(store: Store, profile_id: str) -> Licence:
    """Return the licence that a profile describes."""
    raw, where = store.load(Kind.LICENCES, profile_id)
    return decode(Licence, raw, where=where)


def licence_of(store: Store, repo: str) -> Licence | None:
    """Return the licence that covers a repository, None where none is known."""
    loaded = (load_licence(store, profile_id) for profile_id in store.ids(Kind.LICENCES))
    return next((licence for licence in loaded if licence.coverage(repo)), None)


def repository_named(store: Store, spec: str) -> str:
    """Return the repository of a model, of a draft, or of OWNER/NAME.

    Raises ProfileError for anything else.
    """
    if spec in store.paths(Kind.DRAFTS):
        raw, _ = store.load(Kind.DRAFTS, spec)
        return str(raw["name"])
    return repository(store, spec)
