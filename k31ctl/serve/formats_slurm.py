"""A launch as a Slurm job: srun starts one task on each node, which runs the node's script."""

import shlex

from k31ctl.errors import UsageError
from k31ctl.serve.files import LaunchFile, heading
from k31ctl.serve.formats_shell import script, script_name, shell_files
from k31ctl.serve.rollout import Rollout, Server

_FOLDER = "/launch"


def slurm_files(rollout: Rollout) -> tuple[LaunchFile, ...]:
    """Return a batch script for each server and the script of its nodes."""
    found = []
    for server in rollout.servers:
        node = "node.sh" if len(rollout.servers) == 1 else f"{server.name}-node.sh"
        batch = script_name(rollout, server).removesuffix(".sh") + ".sbatch"
        found.append(LaunchFile(path=batch, text=_batch(rollout, server, node)))
        found.append(LaunchFile(path=node, text=script(rollout, server), executable=True))
    if rollout.router is not None:
        found += [file for file in shell_files(rollout) if file.path == "router.sh"]
    return tuple(found)


def _batch(rollout: Rollout, server: Server, node: str) -> str:
    directives = {
        "job-name": f"{rollout.name}-{server.name}",
        "nodes": server.num_nodes,
        "ntasks-per-node": 1,
        "gpus-per-node": server.gpus_per_node,
        "mem": 0,
        "output": "%x-%j.log",
    }
    lines = ["#!/usr/bin/env bash"]
    lines += [f"#SBATCH --{name}={value}" for name, value in directives.items()]
    lines += ["#SBATCH --exclusive", *heading(rollout), "set -euo pipefail", ""]
    lines += [
        "# the folder of these files, as every node sees it",
        'folder="${LAUNCH_FOLDER:-$SLURM_SUBMIT_DIR}"',
        "# the first node of the job is rank 0",
        'HEAD_ADDRESS="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
        "export HEAD_ADDRESS",
        "",
        "# one rank that ends takes the others with it: they cannot go on without it",
    ]
    return "\n".join([*lines, *_srun(rollout, server, node), ""])


def _srun(rollout: Rollout, server: Server, node: str) -> list[str]:
    words = [
        "srun",
        f"--nodes={server.num_nodes}",
        f"--ntasks={server.num_nodes}",
        "--ntasks-per-node=1",
        "--kill-on-bad-exit=1",
    ]
    if rollout.image is None:
        return [f'{shlex.join(words)} bash "$folder"/{node}']
    mounted = f'"$folder":{_FOLDER}{mounts(rollout)}'
    container = f"{shlex.join(words)} {shlex.quote(f'--container-image={rollout.image}')}"
    return [
        "# the container options are those of the pyxis plugin",
        f"{container} --container-mounts={mounted} bash {_FOLDER}/{node}",
    ]


def mounts(rollout: Rollout) -> str:
    """The further mount that a folder of weights needs; UsageError where Slurm cannot write it."""
    folder = rollout.weights.folder
    if folder is None:
        return ""
    if set(folder) & {",", ":"}:
        raise UsageError(
            "a folder with a comma or a colon cannot be mounted by Slurm",
            where="--model-path",
            remedy="use a folder without them, or leave out --image",
        )
    return f",{shlex.quote(folder)}"
