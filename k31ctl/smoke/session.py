"""What the steps of one child share: the task, the checkpoint, and the model once it is loaded."""

import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from k31ctl.catalog.engines import resolve_engine
from k31ctl.catalog.models import model_at
from k31ctl.catalog.store import Store, default_folders
from k31ctl.core.engine import Engine
from k31ctl.core.host import Host
from k31ctl.core.ladder import Measure
from k31ctl.core.model import Model as Shape
from k31ctl.engine.checkpoint import Checkpoint
from k31ctl.engine.config import EngineConfig
from k31ctl.engine.devices import chosen_devices, chosen_type
from k31ctl.engine.model import Model
from k31ctl.engine.start import Choice, choose, emptied, loaded
from k31ctl.errors import RefusedError
from k31ctl.fetch.partial_marker import read_marker
from k31ctl.host.describe import Asked, describe
from k31ctl.host.free_memory import free_host_bytes, this_machine
from k31ctl.smoke.task import Task
from k31ctl.values import frozen

# What the service step asks for at most; every step plans for it, so that one load serves them all.
NUM_REQUESTS: Final = 2
CONTEXT: Final = 2048
_LAYER: Final = re.compile(r"(?:^|\.)model\.layers\.(\d+)\.")


class Skipped(Exception):  # noqa: N818  no failure
    """A step that cannot run here, and why."""


@frozen
class Found:
    """What a step saw; it fails by a fault, or by a number outside its bounds."""

    detail: str
    measures: tuple[Measure, ...] = ()
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class Session:
    """One child's view of the checkpoint."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.store = Store(default_folders([Path(folder) for folder in task.profiles]))
        self._model: tuple[range | None, Model, Choice] | None = None

    @property
    def folder(self) -> Path:
        """The checkpoint's folder."""
        return self.task.place

    @cached_property
    def chosen(self) -> tuple[torch.device, torch.dtype, tuple[str, str]]:
        """First device and type, and why; raises InputError for a device that is not here."""
        devices, why_device = chosen_devices(self.task.device)
        dtype, why_dtype = chosen_type(self.task.dtype, devices[0])
        return devices[0], dtype, (why_device, why_dtype)

    @property
    def device(self) -> torch.device:
        """Where it is computed."""
        return self.chosen[0]

    @property
    def dtype(self) -> torch.dtype:
        """What is computed in."""
        return self.chosen[1]

    @cached_property
    def shape(self) -> Shape:
        """The model as config.json has it."""
        return model_at(self.folder)

    @cached_property
    def engine(self) -> Engine:
        """The embedded engine's profile."""
        return resolve_engine(self.store, "embedded", self.shape)

    @property
    def config(self) -> EngineConfig:
        """The same, as the engine reads it."""
        return self.checkpoint.config

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The tensors."""
        return Checkpoint(self.folder)

    @cached_property
    def layers(self) -> range | None:
        """The layers that were asked for, or those of a part of a checkpoint; None for all."""
        asked = self.task.layers
        if asked is not None:
            return range(asked[0], asked[1] + 1)
        if read_marker(self.folder) is None:
            return None
        found = sorted({int(n) for name in self.checkpoint.files for n in _LAYER.findall(name)})
        if not found or found[-1] - found[0] + 1 != len(found):
            raise Skipped(f"a part with the layers {found}: name some in a row with --layers A-B")
        return range(found[0], found[-1] + 1)

    @property
    def is_exact(self) -> bool:
        """Whether the engine computes in float32."""
        return bool(self.dtype == torch.float32)

    def reading(self, prefix: str) -> tuple[Callable[[str], Tensor], Callable[[str], bool]]:
        """Reading and asking for tensors below a prefix, without ``language_model.``."""
        files, start = self.checkpoint.files, self.checkpoint.prefix + prefix
        return (
            lambda name: self.checkpoint.tensor(start + name).to(self.device),
            lambda name: bool(start + name in files),
        )

    def model(self, layers: range | None) -> tuple[Model, Choice]:
        """The model with these layers, loaded once; raises Skipped where it does not fit."""
        if self._model is not None and self._model[0] == layers:
            return self._model[1:]
        self._model = None
        emptied()
        wish = self.task.wish(layers, num_requests=NUM_REQUESTS, max_model_len=CONTEXT)
        free = free_host_bytes(this_machine())
        try:
            choice = choose(self.checkpoint, self.shape, self.engine, wish, host_free_bytes=free)
        except RefusedError as refused:
            raise Skipped(f"{refused.what}; {refused.remedy}") from None
        self._model = (layers, loaded(choice), choice)
        return self._model[1:]

    def host(self) -> Host:
        """The machine, as far as a smoke test looks at it."""
        sections = ("system", "gpus", "kernel_log")
        return describe(this_machine(), Asked(), sections=sections)
