"""The node that ``--on`` names: a profile, a file, or this machine."""

from pathlib import Path

from k31ctl.catalog.hardware import load_node, load_nodes, names_node_file, node_at
from k31ctl.catalog.store import Store
from k31ctl.core.hardware import Node

THIS_MACHINE = "this"


def node_named(store: Store, name: str) -> Node:
    """Return the node of a profile or of a file, or this machine's own where it is ``this``."""
    if names_node_file(store, name):
        return node_at(Path(name))
    if name != THIS_MACHINE:
        return load_node(store, name)
    from k31ctl.host.gpus import local_node  # NVML only where asked

    return local_node(load_nodes(store))
