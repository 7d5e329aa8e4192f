"""The speed of a deployment: for what was asked, for every cell, and over a range of loads."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from k31ctl.core.calibration_scope import calibration_assumption
from k31ctl.core.deployment import Cell, Deployment
from k31ctl.core.estimate import Estimate
from k31ctl.core.figure import Assumption, Basis
from k31ctl.core.performance import Performance, as_simulated, performance
from k31ctl.core.prediction import Case, case_of
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.core.step import StepModel
from k31ctl.core.vision import ImageTokens
from k31ctl.core.workload import Workload, resolved_workload
from k31ctl.values import frozen

if TYPE_CHECKING:
    from k31ctl.core.simulated import Simulated

CURVE = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
PATCHES_PER_TOKEN = 4


@frozen
class SpeedPlan:
    """``performance`` is for the load asked for, ``cells`` one by one for the cells of the plan.

    ``simulated`` is the load played out, where that was asked or only that is honest.
    ``curve`` goes over concurrencies up to what the cache holds and once beyond. All are empty,
    and ``why_not`` says why, where nothing can run.
    """

    performance: Performance | None
    cells: tuple[Performance | None, ...]
    curve: tuple[Performance, ...]
    why_not: str
    simulated: "Simulated | None"
    assumptions: tuple[Assumption, ...]


@dataclass(frozen=True, slots=True)
class _Speed:
    """What every load of one deployment shares."""

    parts: Parts
    built: Deployment
    case: Case
    step: StepModel

    def at(self, load: Workload) -> Performance | None:
        length = min(
            load.prompt_tokens + load.output_tokens, self.parts.model.max_position_embeddings
        )
        most = self.built.pool.max_requests(length) if self.built.loads else 0
        if most < 1:
            return None
        return performance(self.case, self.step, self.parts.speed, load, most_running=most)


def speed_plan(
    parts: Parts,
    request: PlanRequest,
    built: Deployment,
    *,
    cells: tuple[Cell, ...],
    image: ImageTokens | None,
) -> SpeedPlan:
    """How fast the deployment is, or why nothing can be said."""
    why_not = speed_why_not(parts, request, built)
    if why_not:
        return SpeedPlan(
            performance=None,
            cells=(None,) * len(cells),
            curve=(),
            why_not=why_not,
            simulated=None,
            assumptions=(),
        )
    depth, kept = drafting(parts, request, built)
    case = case_of(parts, built, draft_tokens=depth, tokens_per_step=kept)
    speed = _Speed(parts, built, case, case.step(parts.speed))
    asked = resolved_workload(
        request.workload, context_tokens=request.contexts[0], full_load=cells[0].max_requests
    )
    if image is not None:
        asked = replace(asked, prompt_tokens=asked.prompt_tokens + image.num_tokens)
    played = None
    if request.simulation is not None:
        from k31ctl.core.simulated import simulated  # noqa: PLC0415  most plans play nothing out

        played = simulated(case, speed.step, built, asked, request.simulation)
    found = speed.at(asked if played is None else _played_load(asked, played))
    if found is not None and played is not None:
        found = as_simulated(found, played, asked, gpus=built.layout.world)
    if found is not None and image is not None:
        found = _with_image(found, case, speed.step, image)
    return SpeedPlan(
        performance=found,
        cells=tuple(speed.at(_cell_load(request, cell)) for cell in cells),
        curve=_curve(speed, asked),
        simulated=played,
        why_not="" if found else "the cache holds no request of this length",
        assumptions=_assumptions(parts, request, depth, kept),
    )


def _played_load(asked: Workload, played: "Simulated") -> Workload:
    """A closed loop with as many requests as ran at once on average."""
    running = max(1, round(played.num_groups * played.summary.mean_running))
    return replace(asked, concurrency=running, rate_per_s=None)


def speed_why_not(parts: Parts, request: PlanRequest, built: Deployment) -> str:
    """Why nothing can be said of the speed of a deployment; empty where something can."""
    if not built.loads:
        return "the deployment does not fit"
    if request.offload is not None:
        return "with experts off the GPUs the link decides: see offload"
    if "bf16" not in parts.node.gpu.matmul:
        return f"the profile of {parts.node.id} has no bf16 matmul rate"
    return ""


def _cell_load(request: PlanRequest, cell: Cell) -> Workload:
    asked = replace(request.workload, prompt_tokens=None, concurrency=None, rate_per_s=None)
    return resolved_workload(asked, context_tokens=cell.context_tokens, full_load=cell.batch)


def _curve(speed: _Speed, asked: Workload) -> tuple[Performance, ...]:
    found: list[Performance] = []
    for concurrency in CURVE:
        point = speed.at(replace(asked, concurrency=concurrency, rate_per_s=None))
        if point is None:
            break
        found.append(point)
        if point.waiting:
            break
    return tuple(found)


def drafting(parts: Parts, request: PlanRequest, built: Deployment) -> tuple[int, float]:
    """Tokens drafted in a step, and tokens that a step yields on average."""
    depth = request.draft_tokens
    if depth is None:
        depth = parts.draft.draft_tokens if parts.draft else 0
    kept = request.workload.accepted_tokens
    if kept is None:
        kept = (parts.draft.accepted(depth) if parts.draft else None) or 1.0
    return depth, min(kept, depth + 1.0)


def _with_image(found: Performance, case: Case, step: StepModel, image: ImageTokens) -> Performance:
    """The same with the time that the encoder takes before the first token.

    Formula: 2 FLOP per encoder weight and patch; four patches become one token. One rank encodes.
    """
    patches = PATCHES_PER_TOKEN * image.num_tokens
    seconds = 2 * case.counted.vision_params * patches / step.rates.prefill_flops_per_s
    return replace(found, ttft_s=_later(found.ttft_s, seconds), e2e_s=_later(found.e2e_s, seconds))


def _later(estimate: Estimate, seconds: float) -> Estimate:
    factor = 1 + seconds / estimate.value
    return estimate.scaled(factor)


def _assumptions(
    parts: Parts, request: PlanRequest, depth: int, kept: float
) -> tuple[Assumption, ...]:
    found = [
        Assumption(
            id="speed-model",
            text="requests have equal lengths and keep step, so their prompts are prefilled one "
            "after another while decoding waits; experts are chosen nearly evenly; low and high "
            "hold 90 %",
            basis=Basis.DERIVED,
            source=f"docs/speed.md; parameters {parts.speed.id} of {parts.speed.checked}, "
            "docs/validation.md",
        )
    ]
    if parts.speed.calibration is not None:
        found.append(calibration_assumption(parts.speed.calibration))
    if parts.model.indexer is not None:
        found.append(
            Assumption(
                id="speed-sparse",
                text=f"no public measurement of {parts.model.name} on data-centre GPUs exists: its "
                "speed is that of Kimi K3 with the indexer's traffic and arithmetic added and "
                "attention cut to the selected tokens",
                basis=Basis.ASSUMED,
                source="derived from Kimi K3's measurements",
            )
        )
    if depth:
        source = "--accepted-tokens"
        if request.workload.accepted_tokens is None:
            source = parts.draft.acceptance_source if parts.draft else ""
        found.append(
            Assumption(
                id="acceptance",
                text=f"a step drafts {depth} tokens and keeps {kept:.2f} on average, the target's "
                "own included; text that is hard to foresee keeps fewer",
                basis=Basis.MEASURED if source else Basis.ASSUMED,
                source=source or "nothing published: nothing drafted counts as kept",
            )
        )
    return tuple(found)
