"""A server that runs here: its log passed on, and beside it what that log means."""

import sys
from collections.abc import Callable, Iterable, Iterator

from k31ctl.core.rules import Finding, Severity
from k31ctl.core.server_log import capacity_finding, read_line
from k31ctl.errors import EndpointError, RefusedError
from k31ctl.report.lines import printable
from k31ctl.serve.rollout import Rollout, Server


def show_run(
    made: Rollout,
    lines: Iterable[str],
    *,
    models: Callable[[], tuple[str, ...] | None],
    ended: Callable[[], int],
) -> None:
    """Pass the log on until the server ends; what is known of it goes to standard error.

    Raises RefusedError where the server ends with a failure, with the first that the log told of;
    EndpointError where it is ready and does not serve the model.
    """
    (server,) = made.servers
    first: Finding | None = None
    for finding in _watched(made, server, lines, models):
        _tell(finding)
        if first is None and finding.severity is Severity.ERROR:
            first = finding
    status = ended()
    if status == 0:
        return
    what = first.message if first else f"the server ended with status {status}"
    raise RefusedError(
        what,
        where=f"{made.title}, {first.where if first else 'log'}",
        remedy=first.remedy if first else "read the last lines of its log",
        rule=first.id if first else "log-ended",
        source=first.source if first else "",
    )


def _watched(
    made: Rollout,
    server: Server,
    lines: Iterable[str],
    models: Callable[[], tuple[str, ...] | None],
) -> Iterator[Finding]:
    """Pass lines on; each finding once, and the model asked for when the server is ready."""
    told: set[str] = set()
    for number, line in enumerate(lines, 1):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
        said = read_line(line, number=number)
        if said.ready and "ready" not in told:
            told.add("ready")
            _check_served(made, models())
        found = said.finding
        if said.capacity_tokens is not None and server.plan.parts.engine.logs_capacity:
            predicted = server.plan.capacity.kv_cache_tokens
            found = capacity_finding(predicted=predicted, logged=said.capacity_tokens)
        if found is not None and found.id not in told:
            told.add(found.id)
            yield found


def _check_served(made: Rollout, names: tuple[str, ...] | None) -> None:
    wanted = made.served_name
    if names is not None and wanted in names:
        sys.stderr.write(f"k31ctl: ready, and serves {printable(wanted)}\n")
        return
    said = "does not answer /v1/models" if names is None else f"serves {', '.join(names)}"
    raise EndpointError(
        f"the server is ready and {printable(said)}",
        where=f"{made.title}, /v1/models",
        remedy=f"it should serve {printable(wanted)}; look at --served-model-name",
    )


def _tell(finding: Finding) -> None:
    sys.stderr.write(
        f"k31ctl: {finding.severity}: {finding.message} ({finding.id}, {finding.where})\n"
        f"     do: {finding.remedy}\n"
    )
