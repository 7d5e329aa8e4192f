"""A measurement held against a plan: predicted with its band, measured, and their ratio."""

from collections.abc import Sequence
from dataclasses import replace

from k31ctl.core.arrivals import Randomness
from k31ctl.core.deployed import Deployed
from k31ctl.core.estimate import Bound, Estimate
from k31ctl.core.observed import E2E, ITL, OUTPUT, QUANTITIES, TOTAL, TPOT, TTFT, Observed
from k31ctl.core.performance import Performance
from k31ctl.core.simulation_request import SimulationRequest
from k31ctl.core.suspect import Suspicion, suspicion
from k31ctl.errors import RefusedError, UsageError
from k31ctl.values import frozen


@frozen
class Held:
    """One quantity; ``ratio`` is measured over predicted."""

    quantity: str
    predicted: Estimate
    measured: float

    @property
    def ratio(self) -> float:
        """Measured over predicted: above 1 a time is longer, a rate higher, than planned."""
        return self.measured / self.predicted.value

    @property
    def within(self) -> bool:
        """Whether the plan's low and high hold what was measured."""
        return self.predicted.low <= self.measured <= self.predicted.high


@frozen
class StageHeld:
    """One stage; without figures where ``observed.why_not`` says why."""

    observed: Observed
    figures: tuple[Held, ...]
    bound_by: Bound | None


@frozen
class Against:
    """All stages, and the term that is likely off."""

    deployment: str
    stages: tuple[StageHeld, ...]
    suspicion: Suspicion


def against(
    deployed: Deployed, stages: Sequence[Observed], *, random: Randomness, seed: int
) -> Against:
    """Hold every stage against what the plan's deployment would do under that stage's own load.

    Arrivals at a rate are played out with ``random``. A stage that the deployment cannot serve is
    not held, and says so.
    """
    held = tuple(_held(deployed, stage, random, seed) for stage in stages)
    within = all(figure.within for stage in held for figure in stage.figures)
    return Against(
        deployment=deployed.named,
        stages=held,
        suspicion=suspicion(deployed, [s.observed for s in held if s.figures], all_within=within),
    )


def _held(deployed: Deployed, stage: Observed, random: Randomness, seed: int) -> StageHeld:
    if stage.why_not:
        return StageHeld(observed=stage, figures=(), bound_by=None)
    try:
        said = _said(deployed, stage, random, seed)
    except (RefusedError, UsageError) as refused:
        return StageHeld(observed=replace(stage, why_not=refused.what), figures=(), bound_by=None)
    predicted = quantities(said, deployed)
    figures = tuple(
        Held(quantity=name, predicted=predicted[name], measured=stage.measured[name])
        for name in QUANTITIES
        if name in stage.measured
    )
    return StageHeld(observed=stage, figures=figures, bound_by=said.bound_by)


def _said(deployed: Deployed, stage: Observed, random: Randomness, seed: int) -> Performance:
    if stage.concurrency is not None:
        return deployed.performance(stage.load, num_rounds=stage.num_rounds)
    asked = SimulationRequest(trace=None, trace_notes=(), slo=None, random=random, seed=seed)
    return deployed.played(stage.load, asked)


def quantities(said: Performance, deployed: Deployed) -> dict[str, Estimate]:
    """What a benchmark measures, as the model says it."""
    kept = deployed.case.tokens_per_step
    return {
        TTFT: said.ttft_s,
        ITL: said.itl_s.scaled(1 / kept),
        TPOT: said.tpot_s,
        E2E: said.e2e_s,
        OUTPUT: said.output_tok_s,
        TOTAL: said.total_tok_s_per_gpu.scaled(deployed.case.layout.world),
    }
