"""Rules about GPUs and memory that a batch job or a variable gives a launch, and does not."""

import re
from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import SIZE_FLAGS, FileKind, LaunchContext
from k31ctl.core.rules.node_rules import ranks_of_command, starts_one_each
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit
from k31ctl.units import show_bytes

_VISIBLE: Final = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
)
_DEVICES: Final = re.compile(r"(\d+|GPU-[0-9a-f-]+)(,(\d+|GPU-[0-9a-f-]+))*", re.IGNORECASE)
# Published recipes give a node of eight GPUs this much host memory, or more.
_RECIPE_BYTES: Final = 700 << 30
_RECIPE_GPUS: Final = 8


def _few_in_job(context: LaunchContext) -> Iterable[Hit]:
    given = context.told_gpus_per_node
    if context.kind is not FileKind.SBATCH or not given or context.on_ray:
        return NOTHING
    nodes = _num_nodes(context)
    if not nodes or context.ranks <= given * nodes:
        return NOTHING
    per_node = -(-context.ranks // nodes)
    where = "its node" if nodes == 1 else f"each of {nodes} nodes"
    return hit(
        context,
        f"the layout takes {context.ranks} GPUs, and #SBATCH --gpus-per-node={given}, or "
        f"--gres=gpu:{given}, gives the job {given} on {where}",
        *SIZE_FLAGS,
        remedy=f"write #SBATCH --gpus-per-node={per_node}, or a smaller layout",
    )


def _few_visible(context: LaunchContext) -> Iterable[Hit]:
    for name in _VISIBLE:
        given = context.variable(name).replace(" ", "")
        if not _DEVICES.fullmatch(given):
            continue
        devices, here = len(given.split(",")), _ranks_here(context)
        if here > devices:
            return hit(
                context,
                f"{name}={given} shows {devices} GPUs to a command that starts {here} ranks",
                *SIZE_FLAGS,
                variable=name,
            )
    return NOTHING


def _ranks_here(context: LaunchContext) -> int:
    """The ranks that one command starts on its own node, at least."""
    nodes = _num_nodes(context)
    if context.on_ray or starts_one_each(context) or not nodes:
        return 1
    return -(-ranks_of_command(context) // nodes)


def _num_nodes(context: LaunchContext) -> int:
    """The nodes that the launch runs on, 0 where only the run knows."""
    is_open = context.is_open("--nnodes")
    nodes = context.most_nodes
    return 0 if is_open and nodes == 1 else nodes


def _host_memory(context: LaunchContext) -> Iterable[Hit]:
    given, where = _given_memory(context)
    model = context.model
    if not given or model is None or not context.is_k3:
        return NOTHING
    box = context.container
    gpus = (box.gpus if box is not None else None) or context.gpus_per_node or _RECIPE_GPUS
    enough = _RECIPE_BYTES * min(gpus, max(1, context.ranks)) // _RECIPE_GPUS
    if given >= enough:
        return NOTHING
    whole = model.published.total_bytes if model.published is not None else None
    nodes = _num_nodes(context)
    share = (whole or 0) // nodes if nodes else 0
    loads = f", and a node loads {show_bytes(share)} of weights" if share else ""
    return hit(
        context,
        f"{where} gives {show_bytes(given)} of host memory{loads}: the recipes give "
        f"{show_bytes(enough)} to {min(gpus, max(1, context.ranks))} GPUs",
        remedy="write #SBATCH --mem=0, which is all of the node"
        if where.startswith("#")
        else f"write {show_bytes(enough)} or more, or leave the limit out",
        severity=Severity.ERROR if given < share else Severity.WARNING,
    )


def _given_memory(context: LaunchContext) -> tuple[int, str]:
    """Host memory that the launch may use, 0 where that is not limited, and what says so."""
    box = context.container
    if box is not None and box.host_memory_bytes is not None:
        return box.host_memory_bytes, "resources.limits.memory"
    return context.told_memory_bytes, "#SBATCH --mem"


ALLOCATION_RULES: Final = (
    Rule(
        id="slurm-few-gpus",
        severity=Severity.ERROR,
        about="a batch job asks for fewer GPUs than the layout takes",
        remedy="ask for as many GPUs as the layout takes",
        source="Slurm documentation, sbatch",
        check=_few_in_job,
    ),
    Rule(
        id="visible-gpus",
        severity=Severity.ERROR,
        about="a variable shows the engine fewer GPUs than the ranks that it starts",
        remedy="name as many GPUs as the layout takes, or leave the variable out",
        source="CUDA programming guide, CUDA_VISIBLE_DEVICES; ROCm documentation, GPU isolation",
        check=_few_visible,
    ),
    Rule(
        id="host-memory",
        severity=Severity.ERROR,
        about="the launch is given less host memory than its node's weights and than recipes give; "
        "a warning where only recipes give more",
        remedy="give it 700 GiB for eight GPUs",
        source="NVIDIA/TensorRT-LLM#17999; ai-dynamo/dynamo recipes/kimi-k3",
        check=_host_memory,
        failures=(29,),
    ),
)
