"""This machine, described as the core describes any node."""

from k31ctl.host.gpus import local_node

__all__ = ["local_node"]
