"""Plan, fetch, serve and measure Kimi K3.1 Pro and its relatives on your own GPUs."""

__version__ = "0.1.0"
