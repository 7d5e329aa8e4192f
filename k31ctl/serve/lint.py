"""A launch file checked: what it starts, with which engine, on what, and what is wrong with it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from k31ctl.catalog.engines import load_draft, load_engine
from k31ctl.catalog.flags import FoundFlags, find_flags
from k31ctl.catalog.hardware import load_node
from k31ctl.catalog.models import load_model, load_model_profile
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Kind, Store
from k31ctl.core.draft import Draft
from k31ctl.core.engine import Engine
from k31ctl.core.hardware import Node
from k31ctl.core.launch import Form, Launch
from k31ctl.core.launch_form import Call, find_call
from k31ctl.core.model import Model
from k31ctl.core.read_launch import read_launch
from k31ctl.core.rules import Finding, LaunchContext, Severity, check
from k31ctl.core.rules.open_values import known_or
from k31ctl.serve.open_launch import (
    is_environment_open,
    is_open,
    open_positions,
    open_variables,
    without_unknown,
)
from k31ctl.serve.read.found import FoundLaunch
from k31ctl.serve.recognise import engine_version, model_id, written_version
from k31ctl.values import frozen


@frozen
class Asked:
    """What the user says about the launch; empty, 0 and None leave it to the file.

    ``ignore`` are rules whose findings do not count, ``only_launches`` whether files that start
    nothing are passed over.
    """

    engine: str = ""
    hardware: str = ""
    node: Node | None = None
    nodes: int = 0
    model: str = ""
    readback: str = ""
    ignore: tuple[str, ...] = ()
    only_launches: bool = False


@frozen
class Linted:
    """One launch with its findings, and what was assumed to check it."""

    found: FoundLaunch
    context: LaunchContext
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]


def lint(store: Store, found: FoundLaunch, asked: Asked, *, name: str) -> Linted:
    """Return what is wrong with one launch of the file with this name."""
    call = find_call(found.texts)
    assert call is not None
    notes: list[str] = []
    flags = _flags(store, found, call, asked, notes)
    environment = {name: each.value for name, each in found.environment.items()}
    launch = read_launch(found.texts, call, flags.catalog, environment=environment)
    launch = without_unknown(launch, found)
    context = _context(store, found, launch, flags, asked, notes)
    told = check(context)
    if asked.readback:
        told = (*told, *_readback(context, asked.readback))
    findings = tuple(_placed(each, found, call, name) for each in told)
    return Linted(found=found, context=context, findings=findings, notes=tuple(notes))


def _readback(context: LaunchContext, url: str) -> tuple[Finding, ...]:
    from k31ctl.core.rules.readback import readback_findings  # noqa: PLC0415  only for --readback
    from k31ctl.serve.readback import running_server  # noqa: PLC0415

    return readback_findings(context, running_server(context.name, url))


def worst(linted: Sequence[Linted]) -> Severity | None:
    """The worst that was found, None where nothing was."""
    found = {finding.severity for each in linted for finding in each.findings}
    return next((severity for severity in Severity if severity in found), None)


def _flags(
    store: Store, found: FoundLaunch, call: Call, asked: Asked, notes: list[str]
) -> FoundFlags:
    """The flags to go by: those of the version asked for, else of the one that the file names."""
    name, _, version = asked.engine.partition("@")
    if name and name != call.engine:
        find_flags(store, asked.engine)  # raises where there is no such engine
        notes.append(f"this starts {call.engine}, so --engine {name} says nothing about it")
        version = ""
    version = version or engine_version(call.engine, found.images, found.installs)
    version = version or written_version(call.engine, found.head)
    flags = find_flags(store, f"{call.engine}@{version}" if version else call.engine)
    if flags.warning:
        notes.append(flags.warning)
    if not version:
        notes.append(
            f"no version of {call.engine} is named, so {flags.catalog.version} is assumed; "
            "--engine says another"
        )
    return flags


def _context(
    store: Store,
    found: FoundLaunch,
    launch: Launch,
    flags: FoundFlags,
    asked: Asked,
    notes: list[str],
) -> LaunchContext:
    version = flags.asked or flags.catalog.version
    model = _model(store, launch, found, asked, notes)
    draft_of_all = LaunchContext(
        launch=launch,
        catalog=flags.catalog,
        version=version,
        kind=found.kind,
        model=model,
        node=_node(store, asked, notes),
        nodes=0,
        engine=_engine(store, launch.engine, flags),
        draft=None,
        speed=None,
        container=found.container,
        installs=found.installs,
        gpu_hint=found.gpu_hint,
        open_ended=is_open(launch, found),
        open_environment=is_environment_open(launch, found),
        open_positions=open_positions(launch, found),
        open_variables=open_variables(launch, found),
        told_gpus_per_node=found.gpus_per_node,
        told_memory_bytes=found.memory_bytes,
        router_ports=found.router_ports,
        on_ray=found.on_ray,
        has_carriage_returns=found.has_carriage_returns,
    )
    draft = known_or(lambda: draft_of_all.draft_name, "")
    whole = replace(draft_of_all, draft=_draft(store, draft))
    nodes = _nodes(whole, found, asked)
    published = nodes > 1 and _is_published(store, launch, flags)
    whole = replace(whole, nodes=nodes, published=published)
    if whole.node is not None and model is not None:
        whole = replace(whole, speed=load_speed(store, None))
    return whole


def _is_published(store: Store, launch: Launch, flags: FoundFlags) -> bool:
    from k31ctl.serve.published import is_published  # noqa: PLC0415  only for several nodes

    return is_published(store, launch, flags.catalog)


def _nodes(context: LaunchContext, found: FoundLaunch, asked: Asked) -> int:
    """How many nodes there are: as asked, as the file says, else one where nothing says more.

    0 where the command takes the number from a variable and nothing else says it.
    """
    told = asked.nodes or max(context.told_nodes, found.nodes, 1)
    is_unknown = any(map(context.is_open, ("--nnodes", "--data-parallel-size-local")))
    return 0 if told == 1 and not asked.nodes and is_unknown else told


def _node(store: Store, asked: Asked, notes: list[str]) -> Node | None:
    if asked.node is not None:
        return asked.node
    if asked.hardware:
        return load_node(store, asked.hardware)
    notes.append("the hardware is not known, so nothing is said of memory and kernels: add --on")
    return None


def _model(
    store: Store, launch: Launch, found: FoundLaunch, asked: Asked, notes: list[str]
) -> Model | None:
    """The model as asked, else the profile that the launch's own name for it stands for."""
    if asked.model:
        return load_model(store, asked.model)
    known = model_id(store, launch.model) or model_id(store, found.model)
    if not known:
        known = _served_as(store, launch)
        if known:
            notes.append(f"{launch.model[:80]} is taken to be {known}, as it is called for clients")
    if known:
        return load_model_profile(store, known)
    if launch.form is not Form.SGLANG_ROUTER:
        named = launch.model[:80] or "no model"
        notes.append(f"{named} is not a model that is known here; --model says which it is")
    return None


def _served_as(store: Store, launch: Launch) -> str:
    """The profile of the name that clients use, empty where that is no model's."""
    given = launch.value("--served-model-name")
    names = given if isinstance(given, list | tuple) else (given,)
    return next((known for name in names if name and (known := model_id(store, str(name)))), "")


def _engine(store: Store, name: str, flags: FoundFlags) -> Engine | None:
    """The memory rules of the release, else of the one whose flags are used."""
    for version in (flags.asked, flags.catalog.version):
        if f"{name}-{version}" in store.paths(Kind.ENGINES):
            return load_engine(store, f"{name}-{version}")
    return None


def _draft(store: Store, name: str) -> Draft | None:
    if not name:
        return None
    drafts = [load_draft(store, profile_id) for profile_id in store.ids(Kind.DRAFTS)]
    wanted, last = name.casefold(), name.rpartition("/")[2].casefold()
    exact = [d for d in drafts if d.name.casefold() == wanted]
    alike = [d for d in drafts if d.name.rpartition("/")[2].casefold() == last]
    is_repository = name.count("/") == 1 and not name.startswith(("/", "."))
    if exact or is_repository:
        return exact[0] if exact else None
    return alike[0] if len(alike) == 1 else None


def _placed(finding: Finding, found: FoundLaunch, call: Call, name: str) -> Finding:
    """The finding with the file and the line that it is about."""
    return replace(finding, where=f"{name}:{_line(finding, found, call)}")


def _line(finding: Finding, found: FoundLaunch, call: Call) -> int:
    if finding.positions:
        return found.words[finding.positions[0]].line
    variable = found.environment.get(finding.variable)
    if variable is not None and variable.line:
        return variable.line
    return found.words[call.first].line or found.line


def all_findings(linted: Sequence[Linted]) -> Iterator[Finding]:
    """Every finding once, however many commands of a file share it."""
    seen: set[tuple[str, str, str]] = set()
    for each in linted:
        for finding in each.findings:
            key = (finding.id, finding.where, finding.message)
            if key not in seen:
                seen.add(key)
                yield finding
