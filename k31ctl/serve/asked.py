"""What a launch is asked for, in base units; None leaves a choice to recipe, plan and engine."""

from enum import StrEnum

from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.planned import Counted, PlannedSettings
from k31ctl.core.recipe import Role
from k31ctl.values import frozen


class Aim(StrEnum):
    """What the launch is tuned for."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"
    CONTEXT = "context"
    COST = "cost"
    BALANCED = "balanced"


class Target(StrEnum):
    """The kind of file that starts it."""

    SHELL = "shell"
    COMPOSE = "compose"
    SLURM = "slurm"
    SYSTEMD = "systemd"
    KUBERNETES = "kubernetes"
    DYNAMO = "dynamo"
    KSERVE = "kserve"


@frozen
class Asked:
    """One pool of servers as the user wants it.

    ``planned`` is what a written plan settles beyond that, ``counted`` the cache that it counted,
    ``warnings`` what was passed over before.
    """

    role: Role
    layout: AskedLayout
    aim: Aim | None
    target: Target
    context_tokens: int
    kv_dtype: KvFormat | None
    max_model_len: int | None
    draft: str | None
    draft_tokens: int | None
    overlays: tuple[str, ...]
    text_only: bool
    port: int | None
    served_name: str | None
    folder: str | None
    image: str | None
    planned: PlannedSettings = PlannedSettings()
    counted: Counted | None = None
    warnings: tuple[str, ...] = ()


@frozen
class Place:
    """Where files run: addresses that are known beforehand."""

    head: str | None
    hosts: tuple[str, ...]
    interface: str | None
