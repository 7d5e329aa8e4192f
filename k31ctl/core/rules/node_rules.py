"""Rules about how an engine is told that its ranks are on several nodes."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import FileKind, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_OF_SEVERAL: Final = (
    "--data-parallel-address",
    "--data-parallel-start-rank",
    "--data-parallel-rank",
    "--data-parallel-hybrid-lb",
    "--data-parallel-external-lb",
    "--data-parallel-multi-port-external-lb",
)
_MEETING: Final = {
    "vllm": "--node-rank RANK --master-addr HEAD on every node and --headless on all but the "
    "first, or --distributed-executor-backend ray on a Ray cluster",
    "sglang": "--node-rank RANK --dist-init-addr HEAD:20000 on every node",
    "tokenspeed": "--node-rank RANK --dist-init-addr HEAD:PORT on every node, or start it by srun",
}
_FLAGS: Final = (
    "--tensor-parallel-size",
    "--tp-size",
    "--attn-tp-size",
    "--pipeline-parallel-size",
    "--pp-size",
    "--data-parallel-size",
)


def _not_told(context: LaunchContext) -> Iterable[Hit]:
    here = context.gpus_per_node
    if not here or context.nodes <= 1 or context.size("nnodes") > 1 or _told(context):
        return NOTHING
    ranks = ranks_of_command(context)
    if ranks <= here or ranks > here * context.nodes:
        return NOTHING
    return hit(
        context,
        f"the command starts {ranks} ranks and a node has {here} GPUs: without --nnodes the "
        "engine looks for all of them on one node and refuses to start",
        *_FLAGS,
        remedy=f"add --nnodes {context.nodes} {_MEETING.get(context.name, '')}".rstrip(),
        severity=Severity.INFO if context.published else None,
    )


def _told(context: LaunchContext) -> bool:
    """Whether something else than --nnodes says that there are several nodes."""
    if context.wrapped or context.on_ray:
        return True
    if context.name == "tokenspeed":
        return context.kind is FileKind.SBATCH or "srun" in context.launch.wrapper
    return starts_one_each(context)


def starts_one_each(context: LaunchContext) -> bool:
    """Whether another program starts the ranks, one by one."""
    backends = ("--distributed-executor-backend", "--data-parallel-backend")
    return any(context.text(flag) in ("ray", "external_launcher") for flag in backends)


def ranks_of_command(context: LaunchContext) -> int:
    """The ranks that one command starts by itself."""
    if context.name != "vllm":
        return context.ranks
    group = context.size("tp") * context.size("pp")
    if context.has("--data-parallel-size-local"):
        return group * max(1, int(context.number("--data-parallel-size-local", 1)))
    return group if any(map(context.has, _OF_SEVERAL)) else group * context.dp


def _local_groups(context: LaunchContext) -> Iterable[Hit]:
    flag = "--data-parallel-size-local"
    here, local = context.gpus_per_node, int(context.number(flag, 0))
    group = context.size("tp") * context.size("pp")
    if not here or not local or context.size("nnodes") > 1 or local * group <= here:
        return NOTHING
    if group > here:
        return NOTHING
    return hit(
        context,
        f"{local} groups of {group} ranks on each node take {local * group} GPUs, and a node has "
        f"{here}",
        flag,
        remedy=f"write {flag} {here // group}",
        change=_with_value(context, flag, here // group),
    )


def _with_value(context: LaunchContext, flag: str, value: int) -> Change | None:
    setting = context.launch.setting(flag)
    if setting is None or len(setting.positions) < 2:  # noqa: PLR2004
        return None
    return Change(replace={setting.positions[-1]: str(value)})


NODE_RULES: Final = (
    Rule(
        id="nodes-not-told",
        absence=True,
        severity=Severity.ERROR,
        about="the ranks are more than a node has GPUs, and nothing says that there are more nodes",
        remedy="add --nnodes, --node-rank and the address of the first node",
        source="vLLM 0.33.0 config/parallel.py; SGLang 0.5.23 srt/server_args.py",
        check=_not_told,
    ),
    Rule(
        id="nodes-local-groups",
        severity=Severity.ERROR,
        about="the groups of data parallelism on one node are more than its GPUs hold",
        remedy="lower --data-parallel-size-local",
        source="vLLM 0.33.0 config/parallel.py",
        check=_local_groups,
        engines=("vllm",),
    ),
)
