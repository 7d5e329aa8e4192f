"""How sure a calibrated model is of each figure: its parameters' covariance, carried through."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log, sqrt

from k31ctl.core.calibration import Calibration
from k31ctl.core.prediction import Case, prefill_tok_s_per_gpu, service_of
from k31ctl.core.speed_parameters import SpeedParameters, tables
from k31ctl.core.step import StepModel
from k31ctl.core.symmetric import quadratic
from k31ctl.core.workload import Workload

STEP = 1e-3
FIGURES = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "output_tok_s", "prefill_tok_s")
Name = tuple[str, str]


def calibrated_spreads(
    case: Case,
    parameters: SpeedParameters,
    calibration: Calibration,
    workload: Workload,
    *,
    most_running: float,
    prefill_concurrency: int,
) -> dict[str, float]:
    """Standard deviation of the logarithm of each figure.

    Parameters of the calibration err together, as its covariance says; all others independently,
    each by its own spread.
    """

    def said(step: StepModel) -> list[float]:
        return _logarithms(
            case,
            step,
            workload,
            most_running=most_running,
            prefill_concurrency=prefill_concurrency,
        )

    step = case.step(parameters)
    base, slopes = said(step), {}
    for name in _names(parameters):
        other = case.step(moved(parameters, name, STEP))
        # Most parameters are of other GPUs and engines.
        slopes[name] = _slope(base, base if other.rates == step.rates else said(other))
    matrix = calibration.matrix()
    own = set(calibration.parameters)
    found = {}
    for index, figure in enumerate(FIGURES):
        variance = quadratic(matrix, [slopes[name][index] for name in calibration.parameters])
        for name, slope in slopes.items():
            if name not in own:
                variance += (slope[index] * tables(parameters)[name[0]][name[1]].spread) ** 2
        found[figure] = sqrt(max(0.0, variance))
    return found


def moved(parameters: SpeedParameters, name: Name, by: float) -> SpeedParameters:
    """The parameters with the logarithm of one of them raised."""
    table, key = name
    entries = dict(tables(parameters)[table])
    entries[key] = replace(entries[key], value=entries[key].value * exp(by))
    return replace(parameters, **{table: entries})  # type: ignore[arg-type]


def _names(parameters: SpeedParameters) -> list[Name]:
    return [
        (table, key)
        for table, entries in tables(parameters).items()
        if table != "model_spread"
        for key in entries
    ]


def _slope(base: Sequence[float], new: Sequence[float]) -> list[float]:
    return [(b - a) / STEP for a, b in zip(base, new, strict=True)]


def _logarithms(
    case: Case,
    step: StepModel,
    workload: Workload,
    *,
    most_running: float,
    prefill_concurrency: int,
) -> list[float]:
    service = service_of(case, step, workload, most_running=most_running)
    prefill = prefill_tok_s_per_gpu(
        case,
        step,
        concurrency=prefill_concurrency,
        prompt_tokens=workload.uncached_tokens,
        past_tokens=workload.prompt_tokens - workload.uncached_tokens,
    )
    values = (
        service.ttft_s,
        service.tpot_s,
        service.decode_s,
        service.e2e_s,
        service.requests_per_s,
        prefill,
    )
    return [log(value) for value in values]
