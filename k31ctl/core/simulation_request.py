"""What a simulation is asked to play out."""

from k31ctl.core.arrivals import OpenLoop, Randomness
from k31ctl.core.slo import Slo
from k31ctl.values import frozen


@frozen
class SimulationRequest:
    """What to play out: ``trace`` where there is one, else the plan's own workload."""

    trace: OpenLoop | None
    trace_notes: tuple[str, ...]
    slo: Slo | None
    random: Randomness
    seed: int
