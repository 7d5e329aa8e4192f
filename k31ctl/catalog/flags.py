"""The flags that a release of an engine reads, and which known release a name stands for."""

from k31ctl.catalog.decode import decode
from k31ctl.catalog.store import Kind, Store, unknown_id
from k31ctl.core.flags import FlagCatalog
from k31ctl.core.release import choose_release, release_key
from k31ctl.values import frozen


@frozen
class FoundFlags:
    """The flags to go by; ``asked`` is the version that was named, empty where none was.

    ``warning`` says what was taken instead where the flags are not those of that version.
    """

    catalog: FlagCatalog
    asked: str
    warning: str = ""


def load_flags(store: Store, profile_id: str) -> FlagCatalog:
    """Return the flags that one file describes."""
    return store.once(Kind.FLAGS, profile_id, _flags)


def _flags(store: Store, profile_id: str) -> FlagCatalog:
    raw, where = store.load(Kind.FLAGS, profile_id)
    return decode(FlagCatalog, raw, where=where)


def find_flags(store: Store, spec: str) -> FoundFlags:
    """Return the flags of ``engine`` or ``engine@version``, or of the release nearest to it."""
    name, _, version = spec.partition("@")
    known = _versions(store, name)
    if not known:
        raise unknown_id(Kind.FLAGS, spec, store.ids(Kind.FLAGS))
    chosen = choose_release(version, known)
    catalog = load_flags(store, f"{name}-{chosen.version}")
    warning = ""
    if not chosen.exact:
        what = "is not a release" if chosen.relation == "not a release" else f"is {chosen.relation}"
        warning = f"{name} {version} {what}; its flags are taken to be those of {chosen.version}"
    return FoundFlags(catalog=catalog, asked=version, warning=warning)


def _versions(store: Store, engine: str) -> list[str]:
    """Return the versions of an engine that have a file; the id is ``engine-version``."""
    start = f"{engine}-"
    found = [i.removeprefix(start) for i in store.ids(Kind.FLAGS) if i.startswith(start)]
    return [version for version in found if release_key(version) is not None]
