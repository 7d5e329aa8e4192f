"""Launch files on standard output, in a folder, or as one JSON document."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from k31ctl.core.gates import GateResult
from k31ctl.core.rules import Finding, Severity
from k31ctl.errors import InputError, RefusedError
from k31ctl.report.envelope import envelope
from k31ctl.report.files import make_folder, write_all
from k31ctl.report.lines import printable
from k31ctl.report.serve_gates import require_passed
from k31ctl.serve.files import LaunchFile
from k31ctl.serve.ledger import shown
from k31ctl.serve.rollout import Rollout, Server

_BESIDE = ("README.md", "prometheus.yaml")


def show_launch(
    made: Rollout,
    files: Sequence[LaunchFile],
    *,
    findings: Sequence[Finding],
    inputs: Mapping[str, object],
    out: Path | None,
    force: bool,
    as_json: bool,
    gates: Sequence[GateResult] = (),
) -> None:
    """Write the files, or print those that start something; JSON holds them all.

    Raises RefusedError where a file is there already and ``force`` is not given; GateError, and
    writes no file, where a gate does not hold.
    """
    passed = all(gate.passed for gate in gates)
    if out is not None and passed:
        _write(out, files, force=force)
    if as_json:
        result = launch_result(made, files, findings=findings, out=out, gates=gates)
        sys.stdout.write(envelope("serve", inputs=inputs, result=result, warnings=made.warnings))
    require_passed(gates, title=made.title)
    if as_json:
        return
    told = [*made.warnings, *(_told(f) for f in findings if f.severity is not Severity.INFO)]
    for warning in dict.fromkeys(told):
        sys.stderr.write(f"warning: {printable(warning)}\n")
    if out is not None:
        sys.stdout.write("".join(f"{line}\n" for line in _summary(made, files, out)))
        return
    started = [file for file in files if file.path not in _BESIDE]
    for file in started:
        if len(started) > 1:
            sys.stdout.write(f"==> {file.path} <==\n")
        sys.stdout.write(file.text)


def launch_result(
    made: Rollout,
    files: Sequence[LaunchFile],
    *,
    findings: Sequence[Finding],
    out: Path | None,
    gates: Sequence[GateResult] = (),
) -> dict[str, Any]:
    """The names and values that JSON sees."""
    return {
        "title": made.title,
        "engine": f"{made.engine}@{made.version}",
        "image": made.image,
        "files": [
            {
                "path": str(out / file.path) if out else file.path,
                "text": file.text,
                "executable": file.executable,
            }
            for file in files
        ],
        "settings": [entry for server in made.servers for entry in _settings(server)],
        "environment": [entry for server in made.servers for entry in _environment(server)],
        "departures": [
            {"server": server.name, "what": d.what, "reason": d.reason}
            for server in made.servers
            for d in server.departures
        ],
        "servers": [_server(server) for server in made.servers],
        "gates": [
            {"gate": gate.gate, "actual": float(gate.actual), "passed": gate.passed}
            for gate in gates
        ],
        "findings": [
            {
                "id": f.id,
                "severity": f.severity,
                "message": f.message,
                "remedy": f.remedy,
                "source": f.source,
                "where": f.where,
            }
            for f in findings
        ],
    }


def _told(finding: Finding) -> str:
    return f"{finding.message} ({finding.id}); {finding.remedy}"


def _server(server: Server) -> dict[str, Any]:
    layout, capacity = server.plan.layout, server.plan.capacity
    return {
        "name": server.name,
        "recipe": server.recipe.id if server.recipe else None,
        "nodes": layout.nodes,
        "layout": {name: getattr(layout, name) for name in ("tp", "pp", "dp", "ep", "dcp")},
        "port": server.port,
        "predicted": {
            "kv_cache_tokens": capacity.kv_cache_tokens,
            "max_model_len": capacity.max_model_len,
            "max_requests": capacity.max_requests,
            "log": capacity.log,
            "start_s": round(server.start_low_s),
            "start_high_s": round(server.start_high_s),
        },
    }


def _settings(server: Server) -> list[dict[str, Any]]:
    return [
        {
            "server": server.name,
            "flag": choice.flag,
            "value": shown(choice.value),
            "reason": choice.reason,
            "source": choice.source,
            "status": choice.standing,
        }
        for choice in server.choices
    ]


def _environment(server: Server) -> list[dict[str, Any]]:
    return [
        {
            "server": server.name,
            "name": variable.name,
            "value": shown(variable.value),
            "reason": variable.reason,
            "source": variable.source,
            "status": variable.standing,
        }
        for variable in server.variables
    ]


def _summary(made: Rollout, files: Sequence[LaunchFile], out: Path) -> list[str]:
    lines = [f"{printable(made.title)}: {len(files)} files in {printable(str(out))}"]
    lines += [f"  {file.path}" for file in files]
    for server in made.servers:
        capacity = server.plan.capacity
        low, high = round(server.start_low_s / 60), round(server.start_high_s / 60)
        lines += [
            f"{server.name}: {capacity.kv_cache_tokens:,} tokens of cache",
            f"  requests of {capacity.max_model_len:,} tokens at once: {capacity.max_requests:,}",
            f"  ready {low} to {high} minutes after its processes start",
        ]
    return [*lines, f"next: {printable(str(out / 'README.md'))} says how to start and check it"]


def _write(out: Path, files: Sequence[LaunchFile], *, force: bool) -> None:
    taken = [file.path for file in files if (out / file.path).exists()]
    if taken and not force:
        raise RefusedError(
            f"{taken[0]} is there already",
            where=str(out),
            remedy="name another folder with --out, or add --force to replace these files",
            rule="serve-overwrite",
        )
    make_folder(out)
    write_all({out / file.path: file.text for file in files})
    for file in files:
        if file.executable:
            _make_executable(out / file.path)


def _make_executable(path: Path) -> None:
    try:
        mode = path.stat().st_mode
        path.chmod(mode | (mode & 0o444) >> 2)
    except OSError as error:
        raise InputError(
            f"cannot make {path.name} executable: {(error.strerror or 'failed').lower()}",
            where=str(path),
            remedy=f"run chmod +x {path.name}",
        ) from error
