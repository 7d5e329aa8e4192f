"""The named parameters of the speed model, each with a value, a spread, a why and a source.

What a GPU or a link reaches by itself stands in its hardware profile. Here stands what only a
whole model on a whole engine shows: gaps between kernels, collectives inside a step, the share of
a kernel's best rate that a serving engine keeps.
"""

from dataclasses import fields
from math import isfinite

from k31ctl.core.calibration import Calibration
from k31ctl.core.figure import Basis
from k31ctl.values import frozen

DEFAULT = "default"
MOST_VALUE = 1e6
MOST_SPREAD = 2.0


@frozen
class Parameter:
    """One value; ``spread`` is the standard deviation of its logarithm, 0.1 for some 10 %.

    ``prior`` and ``prior_spread`` are what was believed before any measurement of a whole model:
    a fit starts there and is held there where nothing is measured.
    """

    value: float
    spread: float
    prior: float
    prior_spread: float
    why: str
    source: str
    basis: Basis

    def __post_init__(self) -> None:
        """State what cannot be true of a parameter, so that a file cannot say it."""
        for value in (self.value, self.prior):
            if not (isfinite(value) and 0 < value < MOST_VALUE):
                raise ValueError(f"value and prior must be above 0 and below {MOST_VALUE:g}")
        for spread in (self.spread, self.prior_spread):
            if not (isfinite(spread) and 0 <= spread <= MOST_SPREAD):
                raise ValueError(f"spread and prior_spread must be between 0 and {MOST_SPREAD:g}")


Table = dict[str, Parameter]


@frozen
class SpeedParameters:
    """All of them; tables are keyed by what their comment says, or ``default``.

    ``calibration`` says what the values were fitted to where that is one site's own runs.
    """

    id: str
    name: str
    checked: str
    layer_overhead_s: Table  # by GPU architecture: fixed time of one layer's kernels in a graph
    engine_overhead_factor: Table  # by engine: times the layer overhead
    step_overhead_s: Table  # by engine: scheduling and sampling that a step waits for
    prefill_layer_overhead_s: Table  # by GPU architecture: one layer's launches without a graph
    own_launch_fraction: Table  # by engine: a sequence's own launches in a layer, of the layer's
    all_reduce_factor: Table  # by engine: times the node's best small all-reduce
    small_all_reduce_s: Table  # by link kind: where no hardware profile has a measured one
    network_all_reduce_s: Table  # by link kind: what crossing nodes adds to an all-reduce
    network_fraction: Table  # by link kind: of the peak rate, in collectives across nodes
    all_to_all_s: Table  # by link kind: one dispatch and combine of few tokens
    pipeline_hop_s: Table  # by engine: from one stage to the next
    dense_read_fraction: Table  # by GPU architecture: of the achieved bandwidth
    expert_read_fraction: Table  # by expert kernel: of the profile's expert bandwidth
    attention_read_fraction: Table  # by GPU architecture: of the achieved bandwidth
    state_read_fraction: Table  # by GPU architecture: of the achieved bandwidth
    matmul_fraction: Table  # by GPU architecture: of the achieved matmul rate, in prefill
    expert_matmul_fraction: Table  # by expert kernel: of the profile's expert matmul rate
    activation_passes: Table  # by engine: hidden-width vectors read or written in one layer
    routing_concentration: Table  # default: share of choices that fall on already chosen experts
    model_spread: Table  # by quantity: spread of what a fitted model still misses
    calibration: Calibration | None = None


def parameter(table: Table, *keys: str) -> Parameter:
    """The entry for the first key that the table has, else its ``default``."""
    for key in keys:
        if key in table:
            return table[key]
    return table[DEFAULT]


def tables(parameters: SpeedParameters) -> dict[str, Table]:
    """Every table by its name."""
    return {
        f.name: getattr(parameters, f.name)
        for f in fields(parameters)
        if f.name not in ("id", "name", "checked", "calibration")
    }
