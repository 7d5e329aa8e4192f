"""Launch files, written from a plan."""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from k31ctl.api.given import (
    Folders,
    checked_range,
    chosen,
    chosen_or_none,
    path_of,
    store_of,
)
from k31ctl.api.hardware import THIS_MACHINE, node_named
from k31ctl.core.asked_pools import AskedPools, asked_pools
from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.planned import PlannedSettings
from k31ctl.core.recipe import Role
from k31ctl.errors import UsageError
from k31ctl.serve.asked import Aim, Asked, Place, Target
from k31ctl.serve.from_plan import Wish
from k31ctl.values import frozen

if TYPE_CHECKING:
    from k31ctl.catalog.store import Store
    from k31ctl.core.hardware import Node
    from k31ctl.core.rules import Finding
    from k31ctl.serve.files import LaunchFile
    from k31ctl.serve.rollout import Rollout

_USUAL_TOKENS: Final = 8192
TENSORRT: Final = "tensorrt-llm"
# Names and addresses of hosts, and interfaces as NCCL takes them, with a comma between several.
_NAMES: Final = re.compile(r"[\w.:%@\[\]^=][\w.:%@,\[\]-]*", re.ASCII)
_IMAGE: Final = re.compile(r"[\w./\[][\w.:/@+#\[\]-]*", re.ASCII)


@frozen
class Launch:
    """What starts a model: its servers with every setting's reason, the files, what lint says."""

    rollout: "Rollout"
    files: "tuple[LaunchFile, ...]"
    findings: "tuple[Finding, ...]"


class LaunchOptions(TypedDict, total=False):
    """The options of ``k31ctl serve`` that say what is served, under the same names.

    Lengths are in tokens. What is left out is the plan's own where one is given, else a default.
    """

    model: str
    engine: str
    on: str
    nodes: int
    tp: int | None
    pp: int | None
    dp: int | None
    ep: int | None
    dcp: int | None
    context: int | None
    max_model_len: int | None
    kv_dtype: str | None
    draft: str | None
    draft_tokens: int | None
    text_only: bool


def launch(
    *,
    plan: str | Path | None = None,
    target: str = Target.SHELL,
    goal: str | None = None,
    disaggregate: str | None = None,
    overlay: Sequence[str] = (),
    image: str | None = None,
    model_path: str | None = None,
    served_name: str | None = None,
    port: int | None = None,
    head: str | None = None,
    hosts: Sequence[str] = (),
    interface: str | None = None,
    force: bool = False,
    profiles: Folders = (),
    **options: Unpack[LaunchOptions],
) -> Launch:
    """Return the files that start a model, every setting with its reason and its source.

    ``plan`` is a file of ``plan --json``, ``target`` what ``--as`` takes. Nothing is written.
    Raises RefusedError where it does not fit, where the engine would refuse it, and, without
    ``force``, where lint has errors for what would be written; UsageError, ProfileError and
    InputError for options, profiles and files that cannot be used.

    >>> launch(model="kimi-k3", engine="vllm", on="8x-b300").files[0].path
    'launch.sh'
    """
    store = store_of(profiles)
    wish = wish_of(store, plan=path_of(plan), said=frozenset(options), **options)
    return launch_of(
        store,
        wish,
        target=chosen(Target, target, where="--as"),
        goal=chosen_or_none(Aim, goal, where="--goal"),
        pools=asked_pools(disaggregate) if disaggregate is not None else None,
        overlay=overlay,
        image=image,
        model_path=model_path,
        served_name=served_name,
        port=port,
        place=asked_place(head, hosts, interface),
        force=force,
    )


def wish_of(
    store: "Store",
    *,
    plan: Path | None,
    said: Collection[str],
    model: str = "kimi-k3.1-pro",
    engine: str = "vllm",
    on: str = "8x-b300",
    nodes: int = 1,
    tp: int | None = None,
    pp: int | None = None,
    dp: int | None = None,
    ep: int | None = None,
    dcp: int | None = None,
    context: int | None = None,
    max_model_len: int | None = None,
    kv_dtype: str | None = None,
    draft: str | None = None,
    draft_tokens: int | None = None,
    text_only: bool = False,
) -> Wish:
    """Return what the options say, joined to the plan where there is one.

    ``said`` are the options that were given, whatever their values.
    """
    _check_alone(draft=draft, draft_tokens=draft_tokens, plan=plan, engine=engine)
    given = Wish(
        model=model,
        engine=engine,
        hardware=on,
        layout=AskedLayout(nodes=nodes, tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp),
        context_tokens=context,
        max_model_len=max_model_len,
        kv_dtype=chosen_or_none(KvFormat, kv_dtype, where="--kv-dtype"),
        draft=draft,
        draft_tokens=draft_tokens,
        text_only=text_only,
        settings=PlannedSettings(),
    )
    if plan is None:
        return given
    from k31ctl.catalog.models import load_model
    from k31ctl.catalog.plan_file import load_plan_file
    from k31ctl.serve.from_plan import joined

    planned = load_plan_file(plan)
    return joined(planned, given, said, model_id=lambda spec: load_model(store, spec).id)


def launch_of(
    store: "Store",
    wish: Wish,
    *,
    target: Target,
    goal: Aim | None,
    pools: AskedPools | None,
    overlay: Sequence[str],
    image: str | None,
    model_path: str | None,
    served_name: str | None,
    port: int | None,
    place: Place,
    force: bool,
) -> Launch:
    """Return the launch of what is wished; see ``launch`` for what it raises."""
    from k31ctl.serve.gather import gather
    from k31ctl.serve.launch_files import launch_files, rollout
    from k31ctl.serve.local_model import checkpoint_folder
    from k31ctl.serve.own_findings import own_findings, refuse_errors

    folder = (
        checkpoint_folder(store, wish.model)
        if model_path is None
        else checked_name("--model-path", model_path)
    )
    _require_whole(folder)
    checked_range("--port", port, least=0, most=65_535)
    asked = Asked(
        role=Role.UNIFIED,
        layout=wish.layout,
        aim=goal,
        target=target,
        context_tokens=wish.context_tokens or _USUAL_TOKENS,
        kv_dtype=wish.kv_dtype,
        max_model_len=wish.max_model_len,
        draft=wish.draft,
        draft_tokens=wish.draft_tokens,
        overlays=tuple(overlay),
        text_only=wish.text_only,
        port=port,
        served_name=checked_name("--served-name", served_name),
        folder=folder,
        image=_checked_image(image),
        planned=wish.settings,
        counted=wish.counted,
        warnings=wish.warnings,
    )
    if wish.engine.partition("@")[0] == TENSORRT:
        return _tensorrt(store, wish, asked, place, pools=pools)
    gathered = gather(
        store,
        model=wish.model,
        engine=wish.engine,
        on=wish.hardware,
        draft=wish.draft,
        image=image,
        node=_node_here(store, wish.hardware),
    )
    made = rollout(gathered, asked, place, pools)
    files = launch_files(made, target)
    findings = own_findings(store, gathered, files, made)
    if not force:
        refuse_errors(findings)
    return Launch(rollout=made, files=tuple(files), findings=tuple(findings))


def _tensorrt(
    store: "Store", wish: Wish, asked: Asked, place: Place, *, pools: AskedPools | None
) -> Launch:
    """The files of TensorRT-LLM, whose flags no catalog has."""
    from k31ctl.serve.launch_files import with_readme
    from k31ctl.serve.tensorrt import tensorrt_files, tensorrt_rollout

    check_tensorrt(execute=False, pools=pools is not None)
    made = tensorrt_rollout(
        store, model=wish.model, engine=wish.engine, on=wish.hardware, asked=asked, place=place
    )
    files = with_readme(made, asked.target, tensorrt_files(made, asked.target))
    return Launch(rollout=made, files=tuple(files), findings=())


def check_tensorrt(*, execute: bool, pools: bool) -> None:
    """Refuse what is not written for TensorRT-LLM."""
    if execute or pools:
        raise UsageError(
            "TensorRT-LLM is neither started here nor split into pools",
            where="--exec, --disaggregate",
            remedy="leave them out, or use another --engine",
        )


def _check_alone(
    *, draft: str | None, draft_tokens: int | None, plan: Path | None, engine: str
) -> None:
    """Refuse options that say nothing by themselves."""
    if draft_tokens is not None and draft is None and plan is None:
        raise UsageError(
            "there is no draft model whose tokens it could count",
            where="--draft-tokens",
            remedy="add --draft NAME; k31ctl profiles list drafts shows them",
        )
    if engine.endswith("@"):
        from k31ctl.catalog.engines import open_version

        raise open_version(engine.removesuffix("@"))


def checked_name(flag: str, text: str | None) -> str | None:
    """Refuse text that an engine would read as a flag, or that no name can be."""
    if text is not None and (not text.strip() or text.startswith("-")):
        raise UsageError(
            f"{text[:60]!r} reads as a flag" if text.strip() else "it is empty",
            where=flag,
            remedy="begin it with a letter, a digit or a slash",
        )
    if text is not None and not text.isprintable():
        raise UsageError(
            f"{text[:60]!r} holds a control character", where=flag, remedy="leave it out"
        )
    return text


def _checked_image(image: str | None) -> str | None:
    """Refuse what no container image is called."""
    if image is not None and _IMAGE.fullmatch(image) is None:
        raise UsageError(
            f"{image[:60]!r} is not the name of an image",
            where="--image",
            remedy="write it as REGISTRY/NAME:TAG or NAME@sha256:DIGEST, without spaces",
        )
    return image


def asked_place(head: str | None, hosts: Sequence[str], interface: str | None) -> Place:
    """Return what is known of the nodes; raises UsageError for what is no name."""
    names = tuple(name.strip() for name in hosts)
    shown = ",".join(hosts)
    if len(set(names)) != len(names):
        raise UsageError(
            f"{shown!r} names a host twice",
            where="--hosts",
            remedy="name each node once, in the order of the nodes",
        )
    if names and not all(names):
        raise UsageError(
            f"{shown!r} holds an empty name",
            where="--hosts",
            remedy="name the nodes with a comma between, such as node0,node1",
        )
    given = (("--head", head), ("--interface", interface), ("--hosts", shown if hosts else None))
    for where, text in given:
        if text is not None and _NAMES.fullmatch(text) is None:
            raise UsageError(
                f"{text[:60]!r} is not a name", where=where, remedy="use letters, digits, . : and -"
            )
    if head is not None and names and head != names[0]:
        raise UsageError(
            f"{head} is not the first of the hosts",
            where="--head",
            remedy="leave it out: the first of --hosts is the head",
        )
    return Place(head=head, hosts=names, interface=interface)


def _node_here(store: "Store", on: str) -> "Node | None":
    """Return this machine, named as its recipes name its GPUs; None where ``on`` is a profile."""
    if on != THIS_MACHINE:
        return None
    from k31ctl.catalog.hardware import load_nodes

    node = node_named(store, on)
    alike = next(known for known in load_nodes(store) if known.gpu.name == node.gpu.name)
    return replace(node, id=f"{node.num_gpus}x-{alike.id.partition('-')[2]}")


def _require_whole(model_path: str | None) -> None:
    """Refuse a folder of this machine that holds a part of a checkpoint; others are not seen."""
    from k31ctl.fetch.partial_marker import require_whole

    if model_path and os.access(model_path, os.X_OK) and Path(model_path).is_dir():
        require_whole(Path(model_path))
