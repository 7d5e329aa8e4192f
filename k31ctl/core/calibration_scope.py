"""Whether a calibration speaks of a deployment at all, and what it leaves open where it does."""

from k31ctl.core.calibration import Calibration
from k31ctl.core.engine import Engine
from k31ctl.core.figure import Assumption, Basis
from k31ctl.core.hardware import Node
from k31ctl.core.request import Parts
from k31ctl.errors import RefusedError

RULE = "calibration-scope"
_SOURCE = "docs/calibrate.md"


def check_scope(found: Calibration | None, *, node: Node, engine: Engine) -> None:
    """Refuse a calibration of other GPUs or of another engine; raises RefusedError."""
    if found is None:
        return
    for what, here, there in (
        ("GPU", node.gpu.name, found.of.gpu),
        ("engine", engine.engine, found.of.engine),
    ):
        if here != there:
            raise RefusedError(
                f"the calibration is of another {what}: {there}, not {here}",
                where=f"{node.id}, {engine.id}",
                remedy=f"calibrate with runs of {here}, or leave --calibration out",
                rule=RULE,
                source=_SOURCE,
            )


def calibration_warnings(parts: Parts, *, layout: str) -> tuple[str, ...]:
    """What differs from the runs behind a calibration without making it void."""
    found = parts.speed.calibration
    if found is None:
        return ()
    others = (
        ("model", parts.model.id, found.of.models),
        ("release of the engine", parts.engine.version, found.of.engine_versions),
        ("layout", layout, found.of.layouts),
    )
    return tuple(
        f"the calibration is of another {what}: {', '.join(there)}, not {here}; its bands do not "
        "count that difference"
        for what, here, there in others
        if here not in there
    )


def calibration_assumption(found: Calibration) -> Assumption:
    """What the speed rests on, and what its low and high are."""
    runs = ", ".join(run.run for run in found.runs)
    engine = f"{found.of.engine} {', '.join(found.of.engine_versions)}"
    return Assumption(
        id="calibration",
        text=f"{len(found.parameters)} parameters of speed are fitted to {found.num_loads} loads "
        f"measured on {found.of.gpu} under {engine}; "
        "low and high come from the covariance of that fit and from what it still misses",
        basis=Basis.MEASURED,
        source=f"k31ctl calibrate of {found.date}, runs {runs}",
    )
