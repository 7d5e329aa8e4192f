"""Profiles: found, read and turned into core types."""

from k31ctl.catalog.decode import decode
from k31ctl.catalog.hardware import load_node, load_nodes
from k31ctl.catalog.json_text import read_json_config
from k31ctl.catalog.store import Kind, Store, default_folders

__all__ = [
    "Kind",
    "Store",
    "decode",
    "default_folders",
    "load_node",
    "load_nodes",
    "read_json_config",
]
