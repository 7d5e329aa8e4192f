"""Where every GiB of a GPU goes, and how many requests fit at each length."""

from typing import Final

from k31ctl.report.html_elements import Head, Markup, chart, el, join, missing, section, table
from k31ctl.report.html_read import Row, count, mapping, rows, text
from k31ctl.report.html_words import NONE, TIMES, duration, figure, gib
from k31ctl.report.plan_text import tokens

_PARTS: Final = (
    ("weights_bytes", "weights"),
    ("activations_bytes", "activations"),
    ("graphs_bytes", "CUDA graphs"),
    ("workspace_bytes", "workspace"),
    ("communication_bytes", "communication"),
    ("vision_bytes", "vision encoder"),
    ("context_bytes", "driver context"),
    ("draft_bytes", "draft model"),
    ("finetune_bytes", "adapter"),
)
_ENGINE: Final = ("workspace_bytes", "communication_bytes", "vision_bytes", "context_bytes")
_EXTRA: Final = ("draft_bytes", "finetune_bytes")


def memory_section(document: Row) -> Markup:
    """The budget of the tightest GPU, and the bars of every case asked for."""
    result = mapping(document.get("result"))
    capacity = gib(mapping(mapping(result.get("memory")).get("per_gpu")).get("capacity_bytes"))
    said = f"The upright line marks the {capacity} GiB that the GPU has."
    if rows(result.get("sweep")):
        said += (
            f" 8 {TIMES} 128k is 8 requests of 128 {TIMES} 1,024 tokens each: of the cases asked "
            "for, the largest that fits, else the smallest."
        )
    return section(
        "memory",
        "Memory per GPU",
        chart("memory", "Memory of one GPU, in GiB", said, _cases(result)),
        _budget(document),
        _costs(result),
    )


def capacity_section(document: Row) -> Markup:
    """How many requests fit, as a map where cases were asked for and as a ladder."""
    result = mapping(document.get("result"))
    return section("capacity", "Context and concurrency", _map(result), _ladder(result))


def memory_bars(document: Row) -> list[dict[str, object]]:
    """The bars of the chart: one for each context, else one for each stage of a pipeline."""
    result = mapping(document.get("result"))
    memory = mapping(result.get("memory"))
    stages, sweep = rows(memory.get("stages")), rows(result.get("sweep"))
    if sweep:
        pools = {count(stage.get("stage")): count(stage.get("pool_bytes")) for stage in stages}
        return [
            _bar(row, pools.get(count(row.get("stage")), 0), _case(row)) for row in _best(sweep)
        ]
    if len(stages) > 1:
        return [
            _bar(_with_free(stage), count(stage.get("pool_bytes")), f"stage {stage.get('stage')}")
            for stage in stages
        ]
    per_gpu = mapping(memory.get("per_gpu"))
    return [_bar(per_gpu, count(memory.get("pool_bytes")), "this plan")] if per_gpu else []


def heatmap(result: Row) -> list[dict[str, object]]:
    """The cells of the map: of ``heatmap``, else of the cases asked for."""
    keys = ("context_tokens", "batch", "fits", "max_requests", "tpot_s")
    cells = rows(result.get("heatmap")) or rows(result.get("sweep"))
    return [
        {key: cell.get(key) for key in keys}
        | {"context": tokens(count(cell.get("context_tokens"))), "said": _fits(cell)}
        for cell in cells
    ]


def _best(sweep: list[Row]) -> list[Row]:
    """Of each context the largest batch that fits, else the smallest."""
    found: list[Row] = []
    for context in dict.fromkeys(count(row.get("context_tokens")) for row in sweep):
        cases = sorted(
            (row for row in sweep if count(row.get("context_tokens")) == context),
            key=lambda row: count(row.get("batch")),
        )
        fitting = [row for row in cases if row.get("fits")]
        found.append(fitting[-1] if fitting else cases[0])
    return found


def _case(row: Row) -> str:
    return f"{count(row.get('batch')):,} {TIMES} {tokens(count(row.get('context_tokens')))}"


def _with_free(stage: Row) -> Row:
    used = sum(count(stage.get(key)) for key, _ in _PARTS)
    return {**stage, "free_bytes": count(stage.get("capacity_bytes")) - used}


def _bar(row: Row, pool: int, name: str) -> dict[str, object]:
    in_pool = _free_in_pool(row, pool)
    parts = {
        "weights": count(row.get("weights_bytes")),
        "activations": count(row.get("activations_bytes")),
        "graphs": count(row.get("graphs_bytes")),
        "engine": sum(count(row.get(key)) for key in _ENGINE),
        "extra": sum(count(row.get(key)) for key in _EXTRA),
        "kv": count(row.get("kv_cache_bytes")),
        "state": count(row.get("state_bytes")),
        "pool": in_pool,
        "left": max(0, count(row.get("free_bytes"))) - in_pool,
    }
    return {"name": name, "capacity": count(row.get("capacity_bytes")), "parts": parts}


def _free_in_pool(row: Row, pool: int) -> int:
    """What of the cache is not asked for."""
    asked = count(row.get("kv_cache_bytes")) + count(row.get("state_bytes"))
    return min(max(0, count(row.get("free_bytes"))), max(0, pool - asked))


def _free(row: Row, pool: int) -> list[tuple[str, int, str, str]]:
    """What is not asked for: in the cache, and as in the text what is left outside of it."""
    in_pool = _free_in_pool(row, pool)
    left = ("left", count(row.get("free_bytes")) - in_pool, "derived", "capacity less all above")
    return [("cache still free", in_pool, "derived", "the engine's cache"), left][not in_pool :]


def _budget(document: Row) -> Markup:
    result = mapping(document.get("result"))
    memory = mapping(result.get("memory"))
    per_gpu = mapping(memory.get("per_gpu"))
    capacity = count(per_gpu.get("capacity_bytes"))
    if not capacity:
        return missing("No budget: the document has no memory of a GPU.")
    lines = [
        (text(row.get("label")), row.get("bytes"), _bases(row), text(row.get("source"), NONE))
        for row in rows(memory.get("lines"))
    ]
    asked = _asked(result)
    lines += [
        ("KV cache", per_gpu.get("kv_cache_bytes"), "as asked", asked),
        ("KDA state", per_gpu.get("state_bytes"), "as asked", asked),
        *_free(per_gpu, count(memory.get("pool_bytes"))),
        ("capacity", capacity, NONE, "hardware profile"),
    ]
    heads = (
        Head("line", is_number=False), Head("GiB"), Head("share"),
        Head("basis", is_number=False), Head("source", is_number=False),
    )  # fmt: skip
    body = [
        (name, gib(size), f"{count(size) / capacity:.1%}", basis, source)
        for name, size, basis, source in lines
    ]
    where = f"the tightest GPU, stage {memory.get('stage')}" if _staged(memory) else "every GPU"
    return table(f"Memory of {where}, in GiB", heads, body)


def _cases(result: Row) -> Markup | None:
    """The numbers behind the bars, where several cases were asked for."""
    found = _best(rows(result.get("sweep")))
    heads = (
        Head(f"requests {TIMES} tokens", is_number=False), Head("KV cache, GiB"),
        Head("KDA state, GiB"), Head("free, GiB"), Head("at most at once"),
    )  # fmt: skip
    body = [
        (
            _case(row),
            gib(row.get("kv_cache_bytes")),
            gib(row.get("state_bytes")),
            gib(row.get("free_bytes")),
            f"{count(row.get('max_requests')):,}",
        )
        for row in found
    ]
    return (
        table("The cases of the bars; all other lines are the same", heads, body) if body else None
    )


def _staged(memory: Row) -> bool:
    return len(rows(memory.get("stages"))) > 1


def _bases(row: Row) -> str:
    bases = row.get("basis")
    return " + ".join(str(basis) for basis in bases) if isinstance(bases, list) else str(bases)


def _asked(result: Row) -> str:
    sweep = rows(result.get("sweep"))
    return f"for {_case(sweep[0])} tokens" if sweep else "for what was asked"


def _costs(result: Row) -> Markup:
    cache = mapping(result.get("cache"))
    per_gpu = mapping(cache.get("per_gpu"))
    weights = mapping(result.get("weights"))
    said = [
        "1 GiB is 1,073,741,824 bytes.",
        f"One more token of context costs {figure(per_gpu.get('bytes_per_token'))} bytes on every "
        f"GPU, in rows of {cache.get('kv_format')}.",
    ]
    if count(per_gpu.get("state_bytes_per_sequence")):
        state = gib(count(per_gpu.get("state_bytes_per_sequence")) * 1024)
        said.append(f"One more request costs {state} MiB of KDA state, whatever its length.")
    said.append(
        f"The checkpoint is {count(weights.get('total_bytes')):,} bytes in "
        f"{count(weights.get('num_tensors')):,} tensors ({_bases(weights)}; "
        f"{text(weights.get('source'), NONE)})."
    )
    return el("p", " ".join(said))


def _map(result: Row) -> Markup:
    cells = heatmap(result)
    if not cells:
        return missing(
            "No map: one case was asked for; --context and --batch take lists, such as 8k,128k,1m."
        )
    contexts = list(dict.fromkeys(str(cell["context"]) for cell in cells))
    batches = sorted({count(cell["batch"]) for cell in cells})
    by_place = {(cell["context"], count(cell["batch"])): cell["said"] for cell in cells}
    heads = [Head("requests at once", is_number=False), *(Head(name) for name in contexts)]
    body = [
        [f"{batch:,}", *(by_place.get((context, batch), NONE) for context in contexts)]
        for batch in batches
    ]
    numbers = table("Whether it fits, by tokens of context (across) and requests", heads, body)
    timed = any(cell["tpot_s"] is not None for cell in cells)
    said = (
        "Colour is the time per output token; grey cells do not fit."
        if timed
        else "Colour is how many times over the requests would fit; grey cells do not fit."
    )
    return chart("heatmap", "What fits: context against concurrency", said, numbers)


def _fits(cell: Row) -> str:
    if not cell.get("fits"):
        return "no"
    timed = cell.get("tpot_s")
    return "yes" if timed is None else duration(timed)


def _ladder(result: Row) -> Markup:
    steps = rows(result.get("concurrency"))
    capacity = mapping(result.get("capacity"))
    heads = (Head("tokens of context", is_number=False), Head("requests at once"))
    body = [
        (f"{count(step.get('context_tokens')):,}", f"{count(step.get('max_requests')):,}")
        for step in steps
    ]
    log = text(capacity.get("log"))
    said = (
        el("p", "At its start the engine will log: ", el("code", log), ". If it says otherwise, ",
           "the memory above is wrong by the difference.")
        if log and mapping(result.get("engine")).get("logs_capacity", True)
        else None
    )  # fmt: skip
    return join([table("The most requests of each length at once", heads, body), said])
