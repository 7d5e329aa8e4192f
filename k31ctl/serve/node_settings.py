"""The settings that make several nodes one server: layout sizes, ranks, addresses."""

from typing import Final

from k31ctl.core.layout import Layout
from k31ctl.errors import RefusedError
from k31ctl.serve.rollout import NodeValue, Where
from k31ctl.values import frozen

SIZE_FLAGS: Final[dict[str, dict[str, str]]] = {
    "vllm": {
        "tp": "--tensor-parallel-size",
        "pp": "--pipeline-parallel-size",
        "dp": "--data-parallel-size",
        "dcp": "--decode-context-parallel-size",
    },
    "sglang": {
        "tp": "--tp-size",
        "pp": "--pp-size",
        "dp": "--attn-dp-size",
        "ep": "--ep-size",
        "dcp": "--dcp-size",
    },
    "tokenspeed": {
        "tp": "--tensor-parallel-size",
        "pp": "--pipeline-parallel-size",
        "dp": "--data-parallel-size",
        "ep": "--expert-parallel-size",
        "dcp": "--decode-context-parallel-size",
    },
}
EXPERTS: Final = "--enable-expert-parallel"
RENDEZVOUS_PORT: Final = {"vllm": 29501, "sglang": 20000, "tokenspeed": 20000}
_DATA_PARALLEL_PORT: Final = 13345
_HEAD: Final = NodeValue(where=Where.HEAD)
_RANK: Final = NodeValue(where=Where.RANK)


@frozen
class NodeSetting:
    """A flag that only several nodes need, with its reason."""

    flag: str
    value: object
    reason: str
    followers_only: bool = False


def size_settings(engine: str, layout: Layout) -> dict[str, object]:
    """Return the flags of the layout that differ from one rank."""
    names = SIZE_FLAGS[engine]
    found: dict[str, object] = {
        flag: getattr(layout, size) for size, flag in names.items() if getattr(layout, size) > 1
    }
    if engine == "vllm" and layout.ep > 1:
        found[EXPERTS] = True
    return found


def node_settings(
    engine: str, layout: Layout, *, every_node_answers: bool
) -> tuple[NodeSetting, ...]:
    """Return what each of several nodes is told about the others; nothing for one node.

    ``every_node_answers`` is vLLM's hybrid load balancing, which takes no headless node.
    """
    if layout.nodes == 1:
        return ()
    match engine:
        case "vllm" if layout.dp > 1:
            return _vllm_groups(layout, every_node_answers=every_node_answers)
        case "vllm":
            return (
                *_count(layout),
                _setting("--master-addr", _HEAD, "where the ranks meet"),
                _setting("--master-port", RENDEZVOUS_PORT[engine], "where the ranks meet"),
                _headless(),
            )
        case "sglang":
            return (*_count(layout), _rendezvous(engine))
        case _:
            own = _setting("--nprocs-per-node", layout.gpus_per_node, "one process per GPU")
            return (*_count(layout), own, _rendezvous(engine))


def _vllm_groups(layout: Layout, *, every_node_answers: bool) -> tuple[NodeSetting, ...]:
    """Groups of vLLM over nodes; a group has to lie inside one of them."""
    local, rest = divmod(layout.gpus_per_node, layout.tp * layout.pp)
    if rest or not local or layout.dp != local * layout.nodes:
        raise RefusedError(
            f"{layout.dp} groups of {layout.tp * layout.pp} ranks do not lie evenly on "
            f"{layout.nodes} nodes of {layout.gpus_per_node} GPUs",
            where=f"--engine vllm, {layout.text}",
            remedy="choose --tp and --pp whose product divides the GPUs of a node, and --dp that "
            "fills all nodes",
            rule="serve-groups-in-nodes",
            source="vLLM 0.33.0 config/parallel.py",
        )
    start = NodeValue(where=Where.RANK, times=local)
    return (
        _setting("--data-parallel-size-local", local, "groups on this node"),
        _setting("--data-parallel-start-rank", start, "the first group of this node"),
        _setting("--data-parallel-address", _HEAD, "where the groups meet"),
        _setting("--data-parallel-rpc-port", _DATA_PARALLEL_PORT, "where the groups meet"),
        *(() if every_node_answers else (_headless(),)),
    )


def _count(layout: Layout) -> tuple[NodeSetting, ...]:
    return (
        _setting("--nnodes", layout.nodes, "nodes of this server"),
        _setting("--node-rank", _RANK, "which of them this is"),
    )


def _rendezvous(engine: str) -> NodeSetting:
    there = NodeValue(where=Where.HEAD, after=f":{RENDEZVOUS_PORT[engine]}")
    return _setting("--dist-init-addr", there, "where the ranks meet")


def _headless() -> NodeSetting:
    return NodeSetting(
        flag="--headless", value=True, reason="only the first node answers", followers_only=True
    )


def _setting(flag: str, value: object, reason: str) -> NodeSetting:
    return NodeSetting(flag=flag, value=value, reason=reason)
