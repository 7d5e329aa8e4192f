"""Words and names that whole downloads and parts have in common."""

from typing import Any

from k31ctl import units
from k31ctl.fetch.part_plan import PartPlan
from k31ctl.fetch.planning import FetchPlan
from k31ctl.fetch.space import Space
from k31ctl.report.durations import duration


def size(num_bytes: int) -> str:
    """Bytes with a prefix."""
    return units.show(num_bytes, "B")


def files(count: int) -> str:
    """A number of files."""
    return f"{count:,} file" + ("" if count == 1 else "s")


def room(space: Space) -> str:
    """Whether the bytes fit, and what is left."""
    if space.left_bytes < 0:
        return f"{size(-space.left_bytes)} too little"
    return f"enough ({size(space.left_bytes)} are left afterwards)"


def licence_text(licence: str | None, gated: str | None) -> str:
    """What the hub says of the terms."""
    gate = f"gated ({gated})" if gated else "not gated"
    return f"{licence or 'not named by the hub'}; {gate}"


def expected_time(plan: FetchPlan | PartPlan) -> str:
    """How long it will take, as the rest of a line; empty where nothing says."""
    if not (plan.bytes_to_get and plan.eta_s is not None and plan.rate_bytes_per_s):
        return ""
    rate = units.show(plan.rate_bytes_per_s, "B/s")
    return f", about {duration(plan.eta_s)} at {rate} ({plan.rate_source})"


def space_result(space: Space | None) -> dict[str, Any]:
    """The room on the target, as JSON has it; object storage has none to tell of."""
    if space is None:
        return {"filesystems": [], "free_bytes": None}
    return {
        "filesystems": [
            {
                "mount": space.mount,
                "free_bytes": space.free_bytes,
                "needed_bytes": space.needed_bytes,
                "free_inodes": space.free_inodes,
                "quota_bytes": space.quota_bytes,
            }
        ],
        "free_bytes": space.free_bytes,
    }
