"""Launch settings that somebody published, kept as they were published."""

from dataclasses import field
from enum import StrEnum

from k31ctl.core.launch import Problem
from k31ctl.core.write_launch import published_words
from k31ctl.values import frozen


class Role(StrEnum):
    """What the settings start: a whole server, a half of one, or an addition to another recipe."""

    UNIFIED = "unified"
    PREFILL = "prefill"
    DECODE = "decode"
    OVERLAY = "overlay"


class Status(StrEnum):
    """Who has run it."""

    VERIFIED = "verified"
    PUBLISHED = "published"
    UNVERIFIED = "unverified"


@frozen
class Drift:
    """What the published form runs into on the catalogued release, and what says the same there."""

    problem: Problem
    subject: str
    now: str
    note: str


@frozen
class Recipe:
    """One published setting; ``flags`` and ``environment`` are as their authors wrote them.

    ``hardware`` are names of GPUs, none where the recipe is for any; ``nodes`` and
    ``gpus_per_node`` are 0 for an addition to other recipes. ``form`` begins the command.
    """

    id: str
    engine: str
    version: str
    model: str
    hardware: tuple[str, ...]
    hardware_note: str = ""
    nodes: int
    gpus_per_node: int
    role: Role
    goal: str
    layout: dict[str, int]
    form: str
    flags: dict[str, object]
    environment: dict[str, str] = field(default_factory=dict)
    status: Status
    status_note: str
    source: str
    note: str = ""
    drift: tuple[Drift, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The command as published, with the model in the place where this form wants it."""
        model: tuple[str, ...] = (self.model,)
        if self.engine == "sglang":
            model = ("--model-path", self.model)
        elif self.form.startswith("python"):
            model = ("--model", self.model)
        return (*self.form.split(), *model, *published_words(self.flags))


@frozen
class RecipeBook:
    """The recipes of one engine for one model."""

    id: str
    name: str
    engine: str
    version: str
    model: str
    checked: str
    recipes: tuple[Recipe, ...]
