"""Everything that a launch is made of, out of the profiles."""

from typing import Final

from k31ctl.catalog.engines import load_draft, load_engine, resolve_engine
from k31ctl.catalog.flags import find_flags
from k31ctl.catalog.hardware import load_node
from k31ctl.catalog.models import load_model, names_file, repository
from k31ctl.catalog.recipes import recipes_for
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.storage import load_startup, load_storage
from k31ctl.catalog.store import Kind, Store
from k31ctl.core.engine import Engine
from k31ctl.core.flags import FlagCatalog
from k31ctl.core.hardware import Node
from k31ctl.core.model import Model
from k31ctl.core.recipe import Recipe
from k31ctl.core.release import choose_release, release_key
from k31ctl.core.request import Parts
from k31ctl.core.storage import Startup, Storage
from k31ctl.errors import ProfileError, RefusedError, UsageError
from k31ctl.values import frozen

_LOCAL_DISKS: Final = "local-nvme"
ENGINES: Final = ("vllm", "sglang", "tokenspeed")
_RACK: Final = "-nvl"


@frozen
class Gathered:
    """The parts of a plan, and beside them the flags, recipes and times of a start.

    ``spec`` is the model as it was asked for; ``version`` is the release that will run; ``engine``
    the one whose memory is planned with.
    """

    parts: Parts
    spec: str
    version: str
    repository: str
    catalog: FlagCatalog
    recipes: tuple[Recipe, ...]
    startup: Startup
    storage: Storage
    warnings: tuple[str, ...]

    @property
    def parser(self) -> str:
        """What a flag's existence rests on."""
        return f"argument parser of {self.catalog.engine} {self.catalog.version}"

    @property
    def model(self) -> Model:
        """The model."""
        return self.parts.model

    @property
    def node(self) -> Node:
        """One of the nodes."""
        return self.parts.node

    @property
    def engine(self) -> Engine:
        """The engine release, as far as memory is concerned."""
        return self.parts.engine


def gather(
    store: Store,
    *,
    model: str,
    engine: str,
    on: str,
    draft: str | None,
    image: str | None,
    node: Node | None = None,
) -> Gathered:
    """Return the parts of a launch; raises RefusedError where no version reads the model.

    ``node`` goes before the profile that ``on`` names.
    """
    name, _, version = engine.partition("@")
    if name not in ENGINES:
        raise UsageError(
            f"serve writes no launch files for {name[:40]!r}",
            where="--engine",
            remedy=f"use one of {', '.join(ENGINES)}, tensorrt-llm",
        )
    if _RACK in on:
        raise UsageError(
            f"{on} is a rack, and every node of it runs its own processes",
            where="--on",
            remedy=f"name its node, such as --on 4x-{on.partition('-')[0]} --nodes 2",
        )
    loaded = load_model(store, model)
    chosen, warnings = _engine(store, name, version, loaded, image)
    flags = find_flags(store, f"{name}@{version or chosen.version}")
    return Gathered(
        parts=Parts(
            model=loaded,
            node=node or load_node(store, on),
            engine=chosen,
            draft=load_draft(store, draft) if draft is not None else None,
            speed=load_speed(store, None),
            prices=None,
        ),
        spec=model,
        version=version or chosen.version,
        repository=repository_of(store, model, loaded),
        catalog=flags.catalog,
        recipes=recipes_for(store, engine=name),
        startup=load_startup(store),
        storage=load_storage(store, _LOCAL_DISKS),
        warnings=tuple(text for text in (*warnings, flags.warning) if text),
    )


def repository_of(store: Store, spec: str, model: Model) -> str:
    """The hub's name of the model; its own name where it came from a file."""
    return model.name if names_file(store, spec) else repository(store, model.id)


def _engine(
    store: Store, name: str, version: str, model: Model, image: str | None
) -> tuple[Engine, tuple[str, ...]]:
    """The release to plan with; an older one stands in for a newer, a branch for an image."""
    if not version:
        return resolve_engine(store, name, model), ()
    ids = [i for i in store.ids(Kind.ENGINES) if i.startswith(f"{name}-")]
    warnings: tuple[str, ...] = ()
    if f"{name}-{version}" in ids:
        chosen = load_engine(store, f"{name}-{version}")
    else:
        released = [v for i in ids if release_key(v := i.removeprefix(f"{name}-"))]
        if release_key(version) is None or not released:
            raise ProfileError(
                f"no engine is called {f'{name}@{version}'[:60]!r}",
                where="--engine",
                remedy=f"known are: {', '.join(i.replace(f'{name}-', f'{name}@', 1) for i in ids)}",
            )
        nearest = choose_release(version, released)
        if nearest.relation == "older":
            raise RefusedError(
                f"{name} {version} is older than {nearest.version}, the first that is known",
                where="--engine",
                remedy=f"use --engine {name}@{nearest.version}",
                rule="serve-old-release",
                source=f"profiles/engines/{name}-{nearest.version}.yaml",
            )
        chosen = load_engine(store, f"{name}-{nearest.version}")
        warnings = (f"{name} {version} is newer than what is known; planned as {chosen.name}",)
    if model.architecture in chosen.architectures:
        return chosen, warnings
    able = [
        e for e in (load_engine(store, i) for i in ids) if model.architecture in e.architectures
    ]
    if image is not None and able:
        said = f"{chosen.name} does not read {model.architecture}; {image} is taken to be as "
        return able[0], (*warnings, f"{said}{able[0].name}, unverified")
    raise RefusedError(
        f"{chosen.name} cannot read {model.architecture}",
        where=f"{model.id}, engine {name}@{version}",
        remedy=_way_out(store, model),
        rule="engine-architecture",
        source=chosen.source,
    )


def _way_out(store: Store, model: Model) -> str:
    """Every engine that reads the model, as options."""
    engines = [load_engine(store, i) for i in store.ids(Kind.ENGINES)]
    able = [e for e in engines if e.engine in ENGINES and model.architecture in e.architectures]
    named = [
        f"--engine {e.engine}@{e.version}" + (" with --image IMAGE" if e.development else "")
        for e in able
    ]
    if model.architecture.startswith("KimiK31"):
        named.append("the NIM container of Kimi K3.1 Pro")
        named.append("serve kimi-k3, which releases read")
    return "use " + ", or ".join(named) if named else "choose another model"
