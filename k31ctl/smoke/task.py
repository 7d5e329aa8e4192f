"""What is asked of a smoke test, and steps as lines of text between the watcher and its child."""

import json
from collections.abc import Collection
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from k31ctl.catalog.engines import resolve_engine
from k31ctl.catalog.hardware import load_node
from k31ctl.catalog.models import model_at
from k31ctl.catalog.store import Store
from k31ctl.core.embedded import Wish
from k31ctl.core.ladder import RUNGS, Measure, Rung, Status, Step
from k31ctl.errors import InputError, UsageError
from k31ctl.values import frozen


@frozen
class Task:
    """A checkpoint and how to run it; empty text leaves a choice to the engine.

    ``truth`` is a record of an earlier run to hold the layers against, ``record`` one to write.
    """

    folder: str
    device: str = ""
    dtype: str = ""
    layers: tuple[int, int] | None = None
    experts: str = ""
    experts_stored_bytes: int | None = None
    experts_ready_bytes: int | None = None
    is_plain: bool = False
    hashes: bool | None = None
    on: str = ""
    truth: str | None = None
    record: str | None = None
    profiles: tuple[str, ...] = ()

    @property
    def place(self) -> Path:
        """The checkpoint's folder."""
        return Path(self.folder)

    def inputs(self) -> dict[str, Any]:
        """What was asked, by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def wish(self, layers: range | None, *, num_requests: int, max_model_len: int) -> Wish:
        """The same, as the engine is asked."""
        return Wish(
            device=self.device,
            dtype=self.dtype,
            layers=layers,
            experts=self.experts,
            experts_stored_bytes=self.experts_stored_bytes,
            experts_ready_bytes=self.experts_ready_bytes,
            is_plain=self.is_plain,
            num_requests=num_requests,
            max_model_len=max_model_len,
        )


def task_line(task: Task) -> str:
    """A task as one line of JSON."""
    return json.dumps(task.inputs()) + "\n"


def read_task(line: str) -> Task:
    """The task of such a line."""
    given: dict[str, Any] = json.loads(line)
    layers = given.pop("layers")
    profiles = tuple(given.pop("profiles"))
    return Task(**given, profiles=profiles, layers=None if layers is None else tuple(layers))


def step_line(step: Step) -> str:
    """What came of a step, as one line of JSON."""
    return json.dumps(asdict(step)) + "\n"


def read_step(line: str) -> Step:
    """The step of such a line."""
    given: dict[str, Any] = json.loads(line)
    return Step(
        id=given["id"],
        name=given["name"],
        status=Status(given["status"]),
        seconds=given["seconds"],
        detail=given["detail"],
        measures=tuple(Measure(**each) for each in given["measures"]),
        notes=tuple(given["notes"]),
    )


def chosen_rungs(*, only: Collection[str], skip: Collection[str]) -> tuple[Rung, ...]:
    """The steps to run, in their order; raises UsageError where none is left."""
    found = tuple(r for r in RUNGS if (not only or r.id in only) and r.id not in skip)
    if not found:
        raise UsageError(
            "these leave no step to run",
            where="--only, --skip",
            remedy="name other steps, or leave one of them out",
        )
    return found


def require_usable(store: Store, task: Task) -> None:
    """Raise where no step could say anything: no such folder, no known model, no such hardware."""
    if not task.place.is_dir():
        raise InputError(
            "there is no such folder", where=task.folder[:200], remedy="name a checkpoint's folder"
        )
    shape = model_at(task.place)
    if task.layers is not None and task.layers[1] >= shape.num_layers:
        raise InputError(
            f"there are {shape.num_layers} layers, numbered from 0",
            where=f"--layers {task.layers[0]}-{task.layers[1]}",
            remedy=f"name layers from 0 to {shape.num_layers - 1}",
        )
    if task.truth is not None and not Path(task.truth).is_file():
        raise InputError(
            "there is no such file",
            where=f"--truth {task.truth[:200]}",
            remedy="write one with k31ctl smoke --record FILE, on a machine that is trusted",
        )
    resolve_engine(store, "embedded", shape)
    if task.on:
        load_node(store, task.on)
