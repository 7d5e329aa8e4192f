"""From what was asked to a rollout, and from a rollout to its files."""

from collections.abc import Callable
from typing import Final

from k31ctl.core.asked_pools import AskedPools
from k31ctl.core.inventory import inventory
from k31ctl.core.recipe import Role
from k31ctl.errors import UsageError
from k31ctl.serve.asked import Asked, Place, Target
from k31ctl.serve.compose import compose
from k31ctl.serve.files import LaunchFile
from k31ctl.serve.formats_compose import compose_files
from k31ctl.serve.formats_dynamo import dynamo_files
from k31ctl.serve.formats_kserve import kserve_files
from k31ctl.serve.formats_kubernetes import kubernetes_files
from k31ctl.serve.formats_shell import shell_files
from k31ctl.serve.formats_slurm import slurm_files
from k31ctl.serve.formats_systemd import systemd_files
from k31ctl.serve.gather import Gathered
from k31ctl.serve.images import usual_image
from k31ctl.serve.launch_names import dns_name, folder_of, title_of
from k31ctl.serve.planned_settings import differences, passed_over
from k31ctl.serve.pool_settings import router
from k31ctl.serve.pools import pool_wishes
from k31ctl.serve.prometheus import prometheus_file
from k31ctl.serve.readme import readme_file
from k31ctl.serve.rollout import Rollout, Router, Server, Weights

WRITERS: Final[dict[Target, Callable[[Rollout], tuple[LaunchFile, ...]]]] = {
    Target.SHELL: shell_files,
    Target.COMPOSE: compose_files,
    Target.SLURM: slurm_files,
    Target.KUBERNETES: kubernetes_files,
    Target.SYSTEMD: systemd_files,
    Target.DYNAMO: dynamo_files,
    Target.KSERVE: kserve_files,
}
_OWN_IMAGE: Final = (Target.COMPOSE, Target.KUBERNETES, Target.KSERVE)
_ABSOLUTE: Final = (Target.SYSTEMD, Target.KUBERNETES, Target.DYNAMO)
_NIM: Final = "/nim/"
_GARBLED: Final = (
    "two pools of vLLM gave garbled text of Kimi K3 (vLLM issue 52627, open); compare answers with "
    "one server's before use"
)
_NAMES: Final = {Role.UNIFIED: "serve", Role.PREFILL: "prefill", Role.DECODE: "decode"}


def rollout(
    gathered: Gathered, asked: Asked, place: Place, pools: AskedPools | None = None
) -> Rollout:
    """Return what is to be started, checked against memory and the engine's refusals."""
    servers = _servers(gathered, asked, pools)
    num_nodes = sum(server.num_nodes for server in servers)
    if place.hosts and len(place.hosts) != num_nodes:
        raise UsageError(
            f"{len(place.hosts)} hosts are named for {num_nodes} nodes",
            where="--hosts",
            remedy=f"name {num_nodes}, separated by commas, in the order of the nodes",
        )
    node, engine = gathered.node, gathered.engine
    amd = node.gpu.vendor == "amd"
    image = asked.image
    if image is None and asked.target in _OWN_IMAGE:
        image = usual_image(engine.engine, gathered.version, amd=amd)
    return Rollout(
        name=dns_name(f"{gathered.model.id}-{engine.engine}"),
        title=title_of(gathered.parts, gathered.version, servers),
        engine=engine.engine,
        version=gathered.version,
        amd=amd,
        weights=Weights(
            repository=gathered.repository,
            folder=folder_of(asked.folder, absolute=asked.target in _ABSOLUTE),
            num_bytes=inventory(gathered.model).total_bytes,
        ),
        image=image,
        served_name=asked.served_name or gathered.repository,
        servers=servers,
        router=_router(gathered, asked, servers),
        head=place.head,
        hosts=place.hosts,
        interface=place.interface,
        warnings=_warnings(gathered, asked, servers),
    )


def _router(gathered: Gathered, asked: Asked, servers: tuple[Server, ...]) -> Router | None:
    """The router of two pools; Dynamo's front end is one by itself."""
    if len(servers) == 1 or asked.target is Target.DYNAMO:
        return None
    prefill, decode = servers
    return router(gathered.engine.engine, prefill, decode)


def _servers(gathered: Gathered, asked: Asked, pools: AskedPools | None) -> tuple[Server, ...]:
    if pools is None:
        return (compose(gathered, asked, name=_NAMES[asked.role]),)
    first, second = pool_wishes(gathered, asked, pools)
    prefill = compose(gathered, first, name=_NAMES[first.role])
    after = prefill.num_nodes
    return prefill, compose(gathered, second, name=_NAMES[second.role], first_node=after)


def _warnings(gathered: Gathered, asked: Asked, servers: tuple[Server, ...]) -> tuple[str, ...]:
    model = gathered.model
    sparse = model.indexer is not None
    found = [*gathered.warnings, *asked.warnings]
    found += passed_over(gathered.engine.engine, asked.planned, sparse=sparse)
    for server in servers:
        found += differences(asked, server)
    if asked.image is not None and _NIM in asked.image:
        told = "is a NIM container: the command here takes the place of its own"
        found.append(f"{asked.image} {told}")
    if len(servers) > 1 and gathered.engine.engine == "vllm":
        found.append(_GARBLED)
    known = model.architecture in gathered.catalog.kimi_architectures
    if gathered.engine.development and not known:
        found.append(f"unverified: nobody has published a launch of {model.name}")
    return tuple(found)


def launch_files(made: Rollout, target: Target) -> tuple[LaunchFile, ...]:
    """Return every file of a launch; the same rollout gives the same bytes."""
    return with_readme(made, target, WRITERS[target](made))


def with_readme(
    made: Rollout, target: Target, files: tuple[LaunchFile, ...]
) -> tuple[LaunchFile, ...]:
    """Return the files of a launch with its scrape configuration and its README."""
    beside = (prometheus_file(made),)
    return (*files, *beside, readme_file(made, target, files))
