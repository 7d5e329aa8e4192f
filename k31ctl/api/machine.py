"""This machine: whether it is ready to serve, and whether a model computes on it as it should."""

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from k31ctl.api.given import Folders, known_ids, path_of, paths_of, store_of
from k31ctl.errors import InputError, UsageError
from k31ctl.values import frozen

if TYPE_CHECKING:
    from k31ctl.core.ladder import Step
    from k31ctl.core.readiness import Readiness

_NEEDED: Final = ("torch", "safetensors", "tiktoken", "PIL", "starlette", "uvicorn")
_PACKAGES: Final = {"PIL": "pillow"}  # whose module has another name
_DEVICE: Final = re.compile(r"cpu|cuda(:[0-9]{1,3})?", re.ASCII)


def doctor(
    model: str = "kimi-k3.1-pro",
    *,
    engine: str = "vllm",
    on: str | None = None,
    nodes: int = 1,
    weights: str | Path | None = None,
    python: str | None = None,
    peers: Sequence[tuple[str, int]] = (),
    root: str | Path = "/",
    only: Collection[str] = (),
    skip: Collection[str] = (),
    timeout: float = 10.0,
    profiles: Folders = (),
) -> "Readiness":
    """Return what stands between this machine and serving a model; nothing is changed.

    ``peers`` are hosts and ports of other nodes, ``timeout`` is the most seconds that any tool may
    take, ``only`` and ``skip`` name checks. Problems are findings of the answer. Raises UsageError
    for an unknown check, ProfileError for an unknown model, engine or hardware.

    >>> for finding in doctor("kimi-k3", only=["shm-size"]).findings:
    ...     print(finding.message, finding.remedy)
    """
    from k31ctl.catalog.needs import load_need
    from k31ctl.core.readiness import RULES, chosen_rules, judged, sections_of
    from k31ctl.host.describe import Asked, describe
    from k31ctl.host.probe import Probe, Processes

    ids = [rule.id for rule in RULES]
    rules = chosen_rules(only=known_ids("--only", only, ids), skip=known_ids("--skip", skip, ids))
    need = load_need(store_of(profiles), model=model, engine=engine, on=on, num_nodes=nodes)
    probe = Probe(
        root=Path(root),
        path=os.environ.get("PATH", os.defpath),
        environment=dict(os.environ),
        timeout_s=timeout,
        processes=Processes(),
    )
    asked = Asked(weights=path_of(weights), interpreter=python, peers=tuple(peers))
    return judged(describe(probe, asked, sections=sections_of(rules)), need, rules)


@frozen
class SmokeRun:
    """A smoke test under way: what it is of, and its steps as they end."""

    title: str
    inputs: dict[str, object]
    steps: "Iterator[Step]"


def smoke_test(
    folder: str | Path | None = None,
    *,
    model: str = "kimi-k3.1-pro",
    on: str = "",
    device: str = "",
    dtype: str = "",
    layers: tuple[int, int] | None = None,
    experts: str = "",
    experts_stored: int | None = None,
    experts_ready: int | None = None,
    only: Collection[str] = (),
    skip: Collection[str] = (),
    timeout: float | None = None,
    truth: str | Path | None = None,
    record: str | Path | None = None,
    hashes: bool | None = None,
    plain: bool = False,
    keep_going: bool = False,
    on_step: "Callable[[Step], None] | None" = None,
    profiles: Folders = (),
) -> "tuple[Step, ...]":
    """Run the embedded engine against float64, step by step, each in a watched process.

    Without ``folder`` a tiny checkpoint of ``model`` is made and removed. ``on_step`` is told each
    step as it ends; the first red one is the last unless ``keep_going``. ``timeout`` is in seconds,
    ``experts_stored`` and ``experts_ready`` in bytes: what is kept of streamed experts.
    A red step is an answer. Raises InputError where the engine's packages are missing or the
    checkpoint cannot be used, UsageError for an unknown step.

    >>> for step in smoke_test(only=["expert"]):
    ...     print(step.id, step.status, step.detail)
    """
    with smoke_run(
        folder,
        model=model,
        on=on,
        device=device,
        dtype=dtype,
        layers=layers,
        experts=experts,
        experts_stored=experts_stored,
        experts_ready=experts_ready,
        only=only,
        skip=skip,
        timeout=timeout,
        truth=truth,
        record=record,
        hashes=hashes,
        plain=plain,
        keep_going=keep_going,
        profiles=profiles,
    ) as run:
        done = []
        for step in run.steps:
            done.append(step)
            if on_step is not None:
                on_step(step)
    return tuple(done)


@contextmanager
def smoke_run(
    folder: str | Path | None,
    *,
    model: str,
    on: str,
    device: str,
    dtype: str,
    layers: tuple[int, int] | None,
    experts: str,
    experts_stored: int | None,
    experts_ready: int | None,
    only: Collection[str],
    skip: Collection[str],
    timeout: float | None,
    truth: str | Path | None,
    record: str | Path | None,
    hashes: bool | None,
    plain: bool,
    keep_going: bool,
    profiles: Folders,
) -> Iterator[SmokeRun]:
    """A smoke test whose steps run as they are asked for; leaving the block ends its process."""
    check_streamed(experts, experts_stored, experts_ready)
    require_engine()
    from k31ctl.core.ladder import RUNGS
    from k31ctl.smoke.folder import smoke_folder
    from k31ctl.smoke.task import Task, chosen_rungs, require_usable
    from k31ctl.smoke.watch import climb

    ids = [rung.id for rung in RUNGS]
    rungs = chosen_rungs(only=known_ids("--only", only, ids), skip=known_ids("--skip", skip, ids))
    store = store_of(profiles)
    with smoke_folder(store, path_of(folder), model=model) as (place, title):
        task = Task(
            folder=str(place),
            device=checked_device(device),
            dtype=dtype,
            layers=layers,
            experts=experts,
            experts_stored_bytes=experts_stored,
            experts_ready_bytes=experts_ready,
            is_plain=plain,
            hashes=hashes,
            on=on,
            truth=str(truth) if truth else None,
            record=str(record) if record else None,
            profiles=tuple(map(str, paths_of("profiles", profiles))),
        )
        require_usable(store, task)
        with closing(climb(task, rungs, keep_going=keep_going, timeout_s=timeout)) as steps:
            yield SmokeRun(
                title=title,
                inputs={**task.inputs(), "folder": str(folder) if folder else None},
                steps=steps,
            )


def require_engine() -> None:
    """Raise InputError where the libraries of the embedded engine are missing or will not load."""
    missing = [_PACKAGES.get(name, name) for name in _NEEDED if find_spec(name) is None]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise InputError(
            f"the embedded engine needs {', '.join(missing)}, which {are} not installed",
            where="this Python",
            remedy="pip install 'k31ctl[engine]'",
        )
    try:
        Path.cwd()
    except OSError:  # a library of torch ends the process there
        raise InputError(
            "the working folder is gone, and torch does not load without one",
            where="the working folder",
            remedy="change to a folder that exists",
        ) from None


def checked_device(text: str) -> str:
    """Return the devices, with commas between them; raises UsageError for what is none."""
    if not text:
        return ""
    names = text.split(",")
    for name in names:
        if _DEVICE.fullmatch(name) is None or (name == "cpu") != (names[0] == "cpu"):
            raise UsageError(
                f"{name[:40]!r} is no device, or none beside {names[0][:40]}",
                where="--device",
                remedy="use cpu, cuda, or several such as cuda:0,cuda:1",
            )
    return text


def check_streamed(experts: str | None, stored: int | None, ready: int | None) -> None:
    """Refuse sizes of what is kept of streamed experts where none are streamed."""
    if experts != "streamed" and (stored is not None or ready is not None):
        raise UsageError(
            "no experts are streamed, whose sizes these are",
            where="--experts-stored, --experts-ready",
            remedy="add --experts streamed, or leave them out",
        )
