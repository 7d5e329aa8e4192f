"""A part of a checkpoint as people and pipelines read it."""

from typing import Any

from k31ctl import units
from k31ctl.fetch.events import Finished
from k31ctl.fetch.part_plan import PartPlan
from k31ctl.fetch.planning import FileState
from k31ctl.report.durations import duration
from k31ctl.report.fetch_words import (
    expected_time,
    files,
    licence_text,
    room,
    size,
    space_result,
)

_NOT_WHOLE = "no published digest covers a part of a file: its bytes rest on the connection (TLS)"


def part_plan_text(plan: PartPlan) -> str:
    """Return what will be done, in words."""
    layout, space = plan.wanted.layout, plan.space
    rows = [("to read", f"{size(plan.bytes_total)} in {layout.num_ranges:,} ranges")]
    if plan.bytes_here:
        rows.append(("already here", size(plan.bytes_here)))
    asked = f", {layout.num_requests:,} requests" if not plan.bytes_here else ""
    rows.append(("to download", f"{size(plan.bytes_to_get)}{asked}{expected_time(plan)}"))
    written = f"{size(layout.written_bytes)} in {files(len(layout.files))}"
    rows.append(("to write", written))
    rows.append((f"free on {space.mount}", f"{size(space.free_bytes)}, {room(space)}"))
    if space.quota_bytes is not None:
        rows.append(("left of your quota", size(space.quota_bytes)))
    rows.append(("licence", licence_text(plan.licence, plan.gated)))
    commit = f" at {plan.commit[:8]}" if plan.commit else ""
    head = f"{plan.repo}{commit}, a part: {plan.selection}: {layout.num_tensors:,} tensors\n"
    return head + "".join(f"{label:<26}{text}\n" for label, text in rows)


def part_finished_text(plan: PartPlan, finished: Finished) -> str:
    """Return what came of it, in words."""
    rate = finished.bytes_downloaded / max(finished.seconds, 1e-6)
    parts = [f"{size(finished.bytes_downloaded)} downloaded in {duration(finished.seconds)}"]
    if finished.bytes_downloaded:
        parts[0] += f" ({units.show(rate, 'B/s')})"
    if finished.bytes_reused:
        parts.append(f"{size(finished.bytes_reused)} reused")
    if finished.num_retries:
        parts.append(f"{finished.num_retries} requests repeated")
    if finished.num_refetched:
        parts.append(f"{files(finished.num_refetched)} fetched again after wrong bytes")
    told = f"{finished.num_verified} of {files(finished.num_files)} written: {', '.join(parts)}\n"
    if not finished.is_proven:
        return told
    whole = num_whole(plan)
    if whole:
        told += f"proof   {files(whole)} taken whole, held against the published SHA-256\n"
    if whole < finished.num_files:
        told += f"        {_NOT_WHOLE},\n" if whole else f"proof   {_NOT_WHOLE},\n"
        told += f"        the commit {plan.commit[:8]} and headers that agree with the index\n"
    return told + f"record  {plan.folder / 'k31ctl-manifest.json'}\n"


def num_whole(plan: PartPlan) -> int:
    """Files that are taken whole and have a published digest."""
    return sum(digest is not None for digest in plan.published)


def part_inputs(plan: PartPlan) -> dict[str, Any]:
    """What was asked for."""
    return {
        "repo": plan.repo,
        "revision": plan.revision,
        "endpoint": plan.endpoint,
        "to": str(plan.folder),
        "selection": plan.selection,
    }


def part_planned(plan: PartPlan) -> dict[str, Any]:
    """The names and values that JSON and gates see before anything is fetched."""
    layout = plan.wanted.layout
    return {
        "commit": plan.commit,
        "licence": plan.licence,
        "gated": plan.gated,
        "partial": True,
        "files": len(layout.files),
        "file_list": [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "num_tensors": file.num_tensors,
                "sha256": digest,
                "bytes_here": here,
                "state": FileState.PARTIAL if here else FileState.MISSING,
            }
            for file, digest, here in zip(
                layout.files, plan.published, plan.file_bytes_here, strict=True
            )
        ],
        "num_tensors": layout.num_tensors,
        "num_ranges": layout.num_ranges,
        "num_requests": layout.num_requests,
        "num_held_against_published": num_whole(plan),
        "bytes_total": plan.bytes_total,
        "bytes_written": layout.written_bytes,
        "bytes_to_get": plan.bytes_to_get,
        "bytes_downloaded": 0,
        "bytes_reused": 0,
        "verified": False,
        "seconds": 0.0,
        "eta_s": plan.eta_s,
        "rate_bytes_per_s": plan.rate_bytes_per_s,
        "rate_source": plan.rate_source or None,
    } | space_result(plan.space)
