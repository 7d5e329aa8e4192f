"""The README of a launch: how to start it, what to see, how to check it, how to go back."""

import json
import shlex
from typing import Final

from k31ctl.serve.asked import Target
from k31ctl.serve.containers import probe
from k31ctl.serve.files import LaunchFile, comment, reason_of
from k31ctl.serve.ledger import shown
from k31ctl.serve.rollout import Rollout, Server
from k31ctl.units import show

_MINUTE_S: Final = 60
_FEW_TOKENS: Final = 256
_START: Final = {
    Target.SHELL: "bash {file}",
    Target.SLURM: "sbatch {file}",
    Target.COMPOSE: "docker compose --file {file} up --detach",
    Target.SYSTEMD: "sudo cp {file} /etc/systemd/system/ && sudo systemctl daemon-reload && "
    "sudo systemctl start {file}",
    Target.KUBERNETES: "kubectl apply --filename {file}",
    Target.DYNAMO: "kubectl apply --filename {file}",
    Target.KSERVE: "kubectl apply --filename {file}",
}
_STOP: Final = {
    Target.SHELL: "stop: end `{file}` with Ctrl-C on every node",
    Target.SLURM: "stop: `scancel JOB`",
    Target.COMPOSE: "stop: `docker compose --file {file} down` on every node",
    Target.SYSTEMD: "stop: `sudo systemctl stop {file}` on every node",
    Target.KUBERNETES: "stop: `kubectl delete --filename {file}`",
    Target.DYNAMO: "stop: `kubectl delete --filename {file}`",
    Target.KSERVE: "stop: `kubectl delete --filename {file}`",
}
_BACK: Final = {
    Target.KUBERNETES: "keep this folder in version control and apply the one before; a "
    "LeaderWorkerSet replaces its group whole",
}
_USUAL_BACK: Final = (
    "keep this folder in version control; stop what runs, then start the files of the folder "
    "before. Weights and compiled kernels stay where they are"
)


def readme_file(rollout: Rollout, target: Target, files: tuple[LaunchFile, ...]) -> LaunchFile:
    """Return the README of a folder of launch files."""
    started = [f for f in files if _is_started(f, target)]
    lines = [f"# {comment(rollout.title)}", ""]
    for warning in rollout.warnings:
        lines += [f"> {comment(warning)}", ""]
    lines += ["## Start", "", *_start(rollout, target, started)]
    for server in rollout.servers:
        lines += ["", f"## What to see: {server.name}", "", *_see(server)]
    lines += ["", "## Check", "", *_check(rollout, target)]
    lines += ["", "## Stop and go back", "", *_back(target, started)]
    for server in rollout.servers:
        lines += ["", f"## Settings: {server.name}", "", *_settings(server)]
    return LaunchFile(path="README.md", text="\n".join(lines) + "\n")


def _is_started(file: LaunchFile, target: Target) -> bool:
    if target is Target.SLURM:
        return file.path.endswith(".sbatch") or file.path == "router.sh"
    if target is Target.SHELL:
        return file.path.endswith(".sh")
    return file.path != "prometheus.yaml"


def _start(rollout: Rollout, target: Target, files: list[LaunchFile]) -> list[str]:
    nodes = rollout.num_nodes
    lines = []
    if target is Target.SHELL and nodes > 1:
        lines.append(
            "On every node, with its own rank, and the same address of the first node "
            "everywhere; the first node is rank 0:"
        )
        lines += ["", "```sh", *(f"RANK=0 HEAD_ADDRESS=NODE0 bash {f.path}" for f in files), "```"]
    else:
        where = "On its own node, each:" if target is Target.COMPOSE and nodes > 1 else "Run:"
        lines += [where, "", "```sh", *(_START[target].format(file=f.path) for f in files), "```"]
    if rollout.router is not None and rollout.router.note:
        lines += ["", f"{rollout.router.note[0].upper()}{rollout.router.note[1:]}."]
    folder = rollout.weights.folder
    if folder is None:
        size = show(rollout.weights.num_bytes, "B")
        lines += ["", f"The engine downloads {size} from the hub at its first start; "]
        lines[-1] += f"`k31ctl fetch {rollout.weights.repository} --to DIR` and `--model-path DIR` "
        lines[-1] += "do it before, resumed and verified."
    return lines


def _see(server: Server) -> list[str]:
    capacity = server.plan.capacity
    found = probe(server)
    low, high = (round(s / _MINUTE_S) for s in (server.start_low_s, server.start_high_s))
    lines = [
        f"- {low} to {high} minutes from the start of the processes to the first answer, with the "
        f"weights on local disks; probes wait {found.start_s // _MINUTE_S} minutes.",
    ]
    if server.plan.parts.engine.logs_capacity:
        lines.append(f"- the log should say `{capacity.log}` or a little more or less.")
    lines.append(
        f"- predicted: {capacity.kv_cache_tokens:,} tokens of cache; requests of "
        f"{capacity.max_model_len:,} tokens that run at once: {capacity.max_requests:,}."
    )
    lines.append("- a tenth less than predicted: something else takes memory on a GPU.")
    if server.ready_line:
        lines.append(f"- ready when the log says `{server.ready_line}`")
    return lines


def _check(rollout: Rollout, target: Target) -> list[str]:
    front = rollout.router.port if rollout.router else rollout.servers[0].port
    host = rollout.head or "127.0.0.1"
    url = f"http://{host}:{front}"
    lines = ["```sh", shlex.join(["curl", "--fail", f"{url}/v1/models"])]
    if rollout.router is None:
        health = f"{url}{rollout.servers[0].health}"
        lines.insert(1, shlex.join(["curl", "--fail", health]))
    lines.append(_question(rollout.served_name, url))
    if target is Target.KUBERNETES:
        name = "router" if rollout.router else rollout.servers[0].name
        forward = f"service/{rollout.name}-{name}-http"
        lines.insert(1, f"kubectl port-forward {forward} {front}:{front} &")
    return [
        *lines,
        "```",
        "",
        "`prometheus.yaml` is the scrape configuration of its metrics. "
        f"`k31ctl lint FILE --readback {url}` holds what runs against these files, "
        f"`k31ctl bench {url}` measures it.",
    ]


def _question(name: str, url: str) -> str:
    """A command that asks the model one thing."""
    asked = {"model": name, "messages": [{"role": "user", "content": "7 times 8?"}]}
    body = json.dumps({**asked, "max_tokens": _FEW_TOKENS})
    kind = "Content-Type: application/json"
    words = ["curl", "--fail", "--header", kind, "--data", body, f"{url}/v1/chat/completions"]
    return shlex.join(words)


def _back(target: Target, files: list[LaunchFile]) -> list[str]:
    lines = [f"- {_STOP[target].format(file=f.path)}" for f in files]
    return [
        *lines,
        "- after a crash: what is left in /dev/shm takes memory until it is removed; "
        "`k31ctl doctor` finds it",
        f"- go back: {_BACK.get(target, _USUAL_BACK)}.",
    ]


def _settings(server: Server) -> list[str]:
    lines = []
    if server.recipe is not None:
        recipe = server.recipe
        lines += [
            f"Made from `{recipe.id}` ({recipe.source}): {recipe.status_note}.",
            "",
        ]
    lines += ["| setting | value | why |", "|---|---|---|"]
    lines += [
        f"| `{c.flag}` | {_cell(shown(c.value))} | {_cell(reason_of(c))} |" for c in server.choices
    ]
    lines += [
        f"| `{v.name}` | {_cell(shown(v.value))} | "
        f"{_cell(f'{v.reason} ({v.standing}: {v.source})')} |"
        for v in server.variables
    ]
    if server.departures:
        lines += ["", "Other than in the recipe:", ""]
        lines += [f"- {_cell(d.what)}: {_cell(d.reason)}" for d in server.departures]
    return lines


def _cell(text: str) -> str:
    """Text that neither ends a cell nor becomes markup."""
    return comment(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
