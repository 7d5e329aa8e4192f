"""The node that ``--on`` names: a profile, or this machine."""

from k31ctl.catalog.hardware import load_node, load_nodes
from k31ctl.catalog.store import Store
from k31ctl.core.hardware import Node

THIS_MACHINE = "this"


def node_named(store: Store, name: str) -> Node:
    """Return the node of a profile, or this machine's own where the name is ``this``."""
    if name != THIS_MACHINE:
        return load_node(store, name)
    from k31ctl.host.gpus import local_node  # NVML only where asked

    return local_node(load_nodes(store))
