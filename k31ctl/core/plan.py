"""A plan: what was asked, composed into what fits, where the memory goes and what was assumed."""

from k31ctl.core.cache_plan import CacheRows
from k31ctl.core.calibration_scope import (
    calibration_warnings,
    check_scope,
)
from k31ctl.core.capacity import StageCache
from k31ctl.core.cost import Cost
from k31ctl.core.costing import Unpriced
from k31ctl.core.deployed import layout_words
from k31ctl.core.deployment import Cell, Deployment, cell_of, deployment, longest_context
from k31ctl.core.figure import Assumption, Line
from k31ctl.core.finetune import Finetune, finetune
from k31ctl.core.inventory import Inventory
from k31ctl.core.layout import Layout
from k31ctl.core.memory import Reservation, StageMemory
from k31ctl.core.model import Model
from k31ctl.core.notes import assumptions, warnings
from k31ctl.core.offload import Offload, offload
from k31ctl.core.plan_cost import plan_cost
from k31ctl.core.pools import Capacity, Pool
from k31ctl.core.remedies import remedies
from k31ctl.core.request import Parts, PlanRequest, check_request
from k31ctl.core.speed_plan import SpeedPlan, speed_plan
from k31ctl.core.vision import ImageTokens, image_tokens
from k31ctl.core.weights import StageWeights
from k31ctl.values import frozen

__all__ = ["CacheCost", "Cell", "Parts", "Plan", "PlanRequest", "plan"]

LADDER = (8 << 10, 32 << 10, 128 << 10, 256 << 10, 1 << 20)


@frozen
class CacheCost:
    """What a token and a request cost over all ranks, with nothing repeated, in bytes."""

    bytes_per_token: int
    latent_bytes_per_token: int
    indexer_bytes_per_token: int
    state_bytes_per_sequence: int


@frozen
class Plan:
    """The answer."""

    parts: Parts
    request: PlanRequest
    layout: Layout
    inventory: Inventory
    weights: tuple[StageWeights, ...]
    reserved: Reservation
    rows: CacheRows
    cost: CacheCost
    caches: tuple[StageCache, ...]
    stages: tuple[StageMemory, ...]
    tightest: int
    capacity: Capacity
    instances: int
    cells: tuple[Cell, ...]
    ladder: tuple[tuple[int, int], ...]
    fits: bool
    longest_context: int
    remedies: tuple[str, ...]
    offload: Offload | None
    finetune: Finetune | None
    image: ImageTokens | None
    speed: SpeedPlan
    cost_usd: Cost | Unpriced | None
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]

    @property
    def cell(self) -> Cell:
        """The first cell asked for: the one that the budget is drawn for."""
        return self.cells[0]

    @property
    def lines(self) -> tuple[Line, ...]:
        """The fixed lines of the tightest stage."""
        return self.stages[self.tightest].fixed


def plan(parts: Parts, request: PlanRequest) -> Plan:
    """Compose a plan.

    Raises RefusedError where the engine refuses model, GPU, layout or cache type or a calibration
    is of something else, and UsageError where a number asked for cannot be; that something does not
    fit is an answer, not an error.
    """
    check_request(parts, request)
    check_scope(parts.speed.calibration, node=parts.node, engine=parts.engine)
    built = deployment(parts, request)
    limit = request.max_model_len or parts.model.max_position_embeddings
    longest = longest_context(built.pool, limit)
    shown_len = limit if request.max_model_len or longest == limit or not longest else longest
    cells = tuple(
        cell_of(parts, built, context, batch)
        for context in request.contexts
        for batch in request.batches
    )
    fits = all(cell.fits for cell in cells) and (
        request.max_model_len is None or built.pool.max_requests(limit) >= 1
    )
    tightest = cells[0].stage
    instances = built.layout.dp
    moved = _offload(parts, request, built)
    if moved is not None and not moved.fits_tier:
        fits = False
    image = _image(parts.model, request)
    speed = speed_plan(parts, request, built, cells=cells, image=image)
    cost = plan_cost(parts, request, built, speed)
    return Plan(
        parts=parts,
        request=request,
        layout=built.layout,
        inventory=built.inventory,
        weights=built.weights,
        reserved=built.reserved,
        rows=built.rows,
        cost=_cost(parts.model, built.rows),
        caches=built.caches,
        stages=built.stages,
        tightest=tightest,
        capacity=built.pool.capacity(shown_len),
        instances=instances,
        cells=cells,
        ladder=_ladder(built.pool, limit, instances),
        fits=fits,
        longest_context=longest,
        remedies=() if fits else remedies(parts, request, built),
        offload=moved,
        finetune=(
            finetune(parts.model, rank=request.lora_rank, pp=built.layout.pp)
            if request.lora_rank
            else None
        ),
        image=image,
        speed=speed,
        cost_usd=cost,
        assumptions=(
            *assumptions(parts, request, built),
            *speed.assumptions,
            *(cost.assumptions if isinstance(cost, Cost) else ()),
        ),
        warnings=(
            *warnings(parts, request, built, longest=longest, limit=limit),
            *calibration_warnings(parts, layout=layout_words(parts.node, built.layout)),
        ),
    )


def _ladder(pool: Pool, limit: int, instances: int) -> tuple[tuple[int, int], ...]:
    """Requests at once for a few usual lengths, up to the longest."""
    lengths = [*(c for c in LADDER if c < limit), limit]
    return tuple((c, instances * pool.max_requests(c)) for c in lengths)


def _cost(model: Model, rows: CacheRows) -> CacheCost:
    full = len(model.full_layers(0, model.num_layers))
    linear = model.num_layers - full
    return CacheCost(
        bytes_per_token=full * rows.row_bytes,
        latent_bytes_per_token=full * rows.latent_bytes,
        indexer_bytes_per_token=full * rows.index_bytes,
        state_bytes_per_sequence=linear * rows.whole_state_bytes,
    )


def _offload(parts: Parts, request: PlanRequest, built: Deployment) -> Offload | None:
    if request.offload is None:
        return None
    return offload(
        parts.model,
        tier=request.offload,
        resident=built.resident or 0,
        stages=built.weights,
        layout=built.layout,
        node=parts.node,
        batch=request.batches[0],
    )


def _image(model: Model, request: PlanRequest) -> ImageTokens | None:
    if request.image is None or model.vision is None:
        return None
    width, height = request.image
    return image_tokens(model.vision, width=width, height=height)
