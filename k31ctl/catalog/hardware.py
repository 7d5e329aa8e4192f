"""Hardware profiles as core types."""

from k31ctl.catalog.decode import decode
from k31ctl.catalog.store import Kind, Store
from k31ctl.core.hardware import Node


def load_node(store: Store, profile_id: str) -> Node:
    """Return the node that a hardware profile describes."""
    raw, where = store.load(Kind.HARDWARE, profile_id)
    return decode(Node, raw, where=where)


def load_nodes(store: Store) -> tuple[Node, ...]:
    """Return every node of the catalog, in the order of the ids."""
    return tuple(load_node(store, profile_id) for profile_id in store.ids(Kind.HARDWARE))
