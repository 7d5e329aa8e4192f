"""Storage and start-up profiles as core types."""

from k31ctl.catalog.decode import decode
from k31ctl.catalog.store import Kind, Store
from k31ctl.core.storage import Startup, Storage

DEFAULT_STARTUP = "kimi"
HUB = "hub"


def load_storage(store: Store, profile_id: str) -> Storage:
    """Return the place for weights that a profile describes."""
    return store.once(Kind.STORAGE, profile_id, _storage)


def _storage(store: Store, profile_id: str) -> Storage:
    raw, where = store.load(Kind.STORAGE, profile_id)
    return decode(Storage, raw, where=where)


def load_startup(store: Store, profile_id: str = DEFAULT_STARTUP) -> Startup:
    """Return the times between an engine's start and its first request."""
    return store.once(Kind.STARTUP, profile_id, _startup)


def _startup(store: Store, profile_id: str) -> Startup:
    raw, where = store.load(Kind.STARTUP, profile_id)
    return decode(Startup, raw, where=where)
