"""What gates of a launch are held against: its findings by severity, and what was predicted."""

from collections.abc import Sequence
from typing import Any

from k31ctl.core.gates import Gate, GateResult, evaluate
from k31ctl.core.rules import Finding, Severity
from k31ctl.errors import GateError
from k31ctl.serve.rollout import Rollout, Server


def gate_results(
    gates: Sequence[Gate], made: Rollout, findings: Sequence[Finding]
) -> tuple[GateResult, ...]:
    """Return what each gate found; raises UsageError for a name that is no number here."""
    values = gate_values(made, findings)
    return tuple(evaluate(gate, values) for gate in gates)


def gate_values(made: Rollout, findings: Sequence[Finding]) -> dict[str, Any]:
    """Counts of findings, and the figures of each server under its name."""
    counts = {
        f"{severity}s": sum(finding.severity is severity for finding in findings)
        for severity in Severity
    }
    servers = {server.name: _figures(server) for server in made.servers}
    return {**counts, "nodes": made.num_nodes, **servers}


def _figures(server: Server) -> dict[str, Any]:
    plan, capacity = server.plan, server.plan.capacity
    return {
        "kv_cache_tokens": capacity.kv_cache_tokens,
        "max_model_len": capacity.max_model_len,
        "max_requests": capacity.max_requests,
        "requests_at_context": plan.cells[0].max_requests,
        "start_s": round(server.start_low_s),
        "start_high_s": round(server.start_high_s),
        "nodes": server.num_nodes,
    }


def require_passed(results: Sequence[GateResult], *, title: str) -> None:
    """Raise GateError for the first gate that does not hold."""
    for result in results:
        if not result.passed:
            raise GateError(
                f"{result.gate} does not hold: it is {result.actual_text}",
                where=title,
                remedy="nothing was written or started; change the launch or the gate",
            )
