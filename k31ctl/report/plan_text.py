"""A plan for a person at a terminal: the conclusion, the budget of a GPU, the assumptions."""

from collections.abc import Iterable
from textwrap import wrap
from typing import TYPE_CHECKING

from k31ctl.core.figure import Basis
from k31ctl.core.plan import Plan
from k31ctl.report.cost_text import cost_summary, cost_text
from k31ctl.report.further import further_blocks
from k31ctl.report.plan_extras import WIDTH, extras
from k31ctl.report.speed_text import cell_lines, speed_lines
from k31ctl.units import show_bytes, show_gib

if TYPE_CHECKING:
    from k31ctl.core.further import Further

BAR_WIDTH = 30
LABEL_WIDTH = 17
SIZE_WIDTH = 9
BASIS_WIDTH = 20
TOKENS_PER_K = 1024


def as_text(
    plan: Plan,
    beside: "Further | None" = None,
    *,
    breakdown: bool = False,
    money: bool = False,
) -> str:
    """The whole answer, at most 80 columns wide, ending in a newline.

    ``breakdown`` adds the parts of a step, ``money`` owning and other utilisations.
    """
    mark = _marks(plan).get("speed-model", "")
    blocks = [_conclusion(plan)]
    if len(plan.cells) > 1:
        blocks.append(_table(plan))
    blocks += [_budget(plan), _costs(plan)]
    blocks.append(speed_lines(plan.speed, breakdown=breakdown, mark=mark))
    if plan.cost_usd is not None:
        blocks.append(cost_text(plan.cost_usd) if money else cost_summary(plan.cost_usd))
    if beside is not None:
        blocks += further_blocks(beside)
    blocks += [block for block in (_ladder(plan), extras(plan), _closing(plan)) if block]
    blocks.append(_assumptions(plan, money=money))
    if plan.warnings:
        blocks.append(["warnings", *_items("w", plan.warnings)])
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def tokens(count: int) -> str:
    """A count of tokens as people write lengths: 128k, 1M, or plain."""
    for factor, suffix in ((TOKENS_PER_K**2, "M"), (TOKENS_PER_K, "k")):
        if count >= factor and count % factor == 0:
            return f"{count // factor}{suffix}"
    return f"{count:,}"


def _paragraph(text: str, *, indent: str = "") -> list[str]:
    return wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False)


def _conclusion(plan: Plan) -> list[str]:
    parts = plan.parts
    count = "one" if plan.layout.nodes == 1 else str(plan.layout.nodes)
    place = f"{count} {parts.node.id} ({plan.layout.text}, {parts.engine.name})"
    holding = sum(cell.fits for cell in plan.cells)
    if plan.fits:
        said = (
            f"{parts.model.name} fits on {place}; {_pool_gib(plan)} GiB of each GPU hold the cache."
        )
    elif 0 < holding < len(plan.cells):
        said = (
            f"{parts.model.name} fits on {place} in {holding} of the {len(plan.cells)} cases asked "
            "for."
        )
    else:
        said = f"{parts.model.name} does not fit on {place}: {_shortage(plan)}."
    lines = _paragraph(said)
    if plan.fits or (holding < len(plan.cells) and holding):
        cell = next(cell for cell in plan.cells if cell.fits)
        requests = "request" if cell.max_requests == 1 else "requests at once"
        lines += _paragraph(
            f"At {tokens(cell.context_tokens)} tokens of context it holds {cell.max_requests:,} "
            f"{requests}; one request may reach {tokens(plan.longest_context)} tokens."
        )
    return lines + [f"  way out: {remedy}" for remedy in plan.remedies]


def _pool_gib(plan: Plan) -> str:
    return show_gib(max(0, plan.capacity.pool_bytes))


def _shortage(plan: Plan) -> str:
    left = max(cell.free_bytes for cell in plan.cells)
    if left < 0:
        return f"{show_bytes(-left)} are missing on each GPU"
    limit = plan.request.max_model_len
    if limit is not None and plan.capacity.max_requests < 1:
        return f"one request of {limit:,} tokens, the maximum length, is more than its cache holds"
    if plan.offload is not None and not plan.offload.fits_tier:
        return f"the {plan.offload.tier} tier is too small for the experts that leave the GPUs"
    return f"the engine keeps {_pool_gib(plan)} GiB of each GPU for the cache, which is too little"


def _table(plan: Plan) -> list[str]:
    lines = ["   context  requests  fits     KV cache  KDA state      free   at most"]
    lines.append("    tokens                      GiB        GiB       GiB  requests")
    for cell in plan.cells:
        sizes = (cell.kv_cache_bytes, cell.state_bytes, cell.free_bytes)
        kv, state, free = (show_gib(size) for size in sizes)
        fits = "yes" if cell.fits else "no"
        lines.append(
            f"{tokens(cell.context_tokens):>10}{cell.batch:>10,}  {fits:<4}{kv:>13}{state:>11}"
            f"{free:>10}{cell.max_requests:>10,}"
        )
    speeds = [(c, s) for c, s in zip(plan.cells, plan.speed.cells, strict=True) if s]
    return [*lines, "", *cell_lines(speeds)] if speeds else lines


def _marks(plan: Plan) -> dict[str, str]:
    """The mark of each assumption, a1 and on, by its id."""
    return {item.id: f"a{n}" for n, item in enumerate(plan.assumptions, 1)}


def _budget(plan: Plan) -> list[str]:
    stage, marks = plan.stages[plan.tightest], _marks(plan)
    capacity = stage.capacity_bytes
    named = "per GPU" if plan.layout.pp == 1 else f"per GPU of stage {stage.stage}, the tightest"
    head = f"  {named}, of {show_gib(capacity)} GiB"
    lines = [f"{head:<{LABEL_WIDTH + BAR_WIDTH + 4}}    GiB  basis"]
    drafts = [
        (line.label, line.num_bytes, _basis(line.bases, marks.get(line.assumption)))
        for line in stage.fixed
    ]
    drafts += _cache_lines(plan)
    for label, num_bytes, basis in drafts:
        bar = "#" * round(BAR_WIDTH * max(0, min(num_bytes, capacity)) / capacity)
        size = show_gib(num_bytes)
        room = BAR_WIDTH + SIZE_WIDTH - len(size)
        lines.append(f"  {label:<{LABEL_WIDTH}}{bar[: room - 1]:<{room}}{size}  {basis}".rstrip())
    return lines


def _cache_lines(plan: Plan) -> list[tuple[str, int, str]]:
    """The engine's pool with what was asked inside it; only the asking where there is no pool."""
    cell, mark = plan.cell, _marks(plan).get("memory-fraction")
    given = plan.request.kv_memory_bytes is not None
    derived = "as asked" if given else _basis((Basis.DERIVED,), mark)
    asked = f"for {cell.batch:,} x {tokens(cell.context_tokens)}"
    if len(asked) > BASIS_WIDTH:
        asked = "for what was asked"
    pool, used = max(0, plan.capacity.pool_bytes), cell.kv_cache_bytes + cell.state_bytes
    parts = [("KV cache", cell.kv_cache_bytes), ("KDA state", cell.state_bytes)]
    if not pool or used > pool:
        left = ("left", cell.free_bytes, "")
        return [(label, size, asked) for label, size in parts if size] + [left]
    inside = [(f"  {label}", size, asked) for label, size in parts if size]
    return [
        ("cache pool", pool, derived),
        *inside,
        ("left", cell.free_bytes + used - pool, ""),
    ]


def _basis(bases: Iterable[Basis], mark: str | None) -> str:
    text = "+".join(bases)
    return f"{text} {mark}" if mark else text


def _costs(plan: Plan) -> list[str]:
    cache, cost = plan.caches[plan.tightest], plan.cost
    lines = []
    how = "TP does not divide it" if plan.layout.dcp == 1 else f"DCP{plan.layout.dcp} divides it"
    index = (
        f", {show_bytes(cache.indexer_bytes_per_token)} of it index keys"
        if cache.indexer_bytes_per_token
        else ""
    )
    lines += _paragraph(
        f"  a token costs {show_bytes(cache.bytes_per_token)} on every GPU "
        f"({how}{index}); {cost.bytes_per_token:,} bytes in all, rows in {plan.rows.kv_format}",
        indent="    ",
    )
    if cost.state_bytes_per_sequence:
        lines += _paragraph(
            f"  a request costs {show_bytes(cache.state_bytes_per_sequence)} of KDA state on "
            f"every GPU, whatever its length; {cost.state_bytes_per_sequence:,} bytes in all",
            indent="    ",
        )
    if plan.layout.pp > 1:
        stages = ", ".join(show_gib(stage.total_bytes) for stage in plan.weights)
        lines += _paragraph(f"  weights by stage, GiB on each rank: {stages}", indent="    ")
    padding = plan.weights[plan.tightest].padding_bytes
    if padding:
        lines += _paragraph(
            f"  {show_gib(padding)} GiB of the weights are padding: the kernels round each "
            "rank's share of an expert up",
            indent="    ",
        )
    counted = plan.inventory
    lines += _paragraph(
        f"  the checkpoint: {counted.total_bytes:,} bytes in {counted.num_tensors:,} tensors, "
        f"{counted.total_params:,} parameters, {counted.active_params / 1e9:.2f} B active "
        f"({'+'.join(counted.bases)})",
        indent="    ",
    )
    return lines


def _ladder(plan: Plan) -> list[str]:
    if not plan.fits or len(plan.cells) > 1:
        return []
    heads = "".join(f"{tokens(context):>10}" for context, _ in plan.ladder)
    counts = "".join(f"{most:>10,}" for _, most in plan.ladder)
    return [f"  context {heads}", f"  at once {counts}"]


def _closing(plan: Plan) -> list[str]:
    if not plan.fits:
        return []
    limit, engine = plan.capacity.max_model_len, plan.parts.engine
    says = "will log" if engine.logs_capacity else "holds, in our words"
    lines = _paragraph(f"  {engine.name} {says}: {plan.capacity.log}", indent="    ")
    whole = plan.request.max_model_len or plan.parts.model.max_position_embeddings
    if limit == whole:
        counted = f"{plan.capacity.max_concurrency:.2f} at once"
        lines += _paragraph(
            f"  counted for requests of up to {limit:,} tokens: {counted}", indent="    "
        )
    else:
        lines += _paragraph(
            f"  counted for requests of {limit:,} tokens, the longest that fits: {whole:,} do not",
            indent="    ",
        )
    if plan.instances > 1:
        lines.append(f"  on each of {plan.instances} data-parallel instances")
    if len(plan.cells) == 1:
        lines.append("  next: add --context 8k,128k,1m --batch 1,8 for a table; k31ctl inspect")
        lines.append("    DIR holds a downloaded checkpoint against this inventory")
    return lines


def _assumptions(plan: Plan, *, money: bool) -> list[str]:
    """All of them; those on owning, which come last, only where owning is shown."""
    lines = ["assumptions"]
    for n, item in enumerate(plan.assumptions, 1):
        if item.id.startswith("owning-") and not money:
            break
        text = f"{item.text} ({item.basis}: {item.source})"
        lines += wrap(text, WIDTH, initial_indent=f"  a{n:<3}", subsequent_indent=" " * 6)
    return lines


def _items(mark: str, texts: Iterable[str]) -> list[str]:
    lines = []
    for n, text in enumerate(texts, 1):
        lines += wrap(text, WIDTH, initial_indent=f"  {mark}{n:<3}", subsequent_indent=" " * 6)
    return lines
