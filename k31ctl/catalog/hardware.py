"""Hardware profiles as core types."""

from pathlib import Path

from k31ctl.catalog.decode import decode
from k31ctl.catalog.store import Kind, Store, read_profile
from k31ctl.core.hardware import Node


def load_node(store: Store, profile_id: str) -> Node:
    """Return the node that a hardware profile describes."""
    return store.once(Kind.HARDWARE, profile_id, _node)


def _node(store: Store, profile_id: str) -> Node:
    raw, where = store.load(Kind.HARDWARE, profile_id)
    return decode(Node, raw, where=where)


def names_node_file(store: Store, name: str) -> bool:
    """Whether a name is that of a file and not of a profile, which goes before it."""
    return name not in store.paths(Kind.HARDWARE) and Path(name).suffix in (".yaml", ".json")


def node_at(path: Path) -> Node:
    """Return the node of a file that is written as a profile is, such as ``bench hw`` writes."""
    return decode(Node, read_profile(path), where=str(path))


def load_nodes(store: Store) -> tuple[Node, ...]:
    """Return every node of the catalog, in the order of the ids."""
    return tuple(load_node(store, profile_id) for profile_id in store.ids(Kind.HARDWARE))
