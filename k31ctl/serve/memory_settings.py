"""The settings that follow from memory: the longest request and how many run at once."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from k31ctl.core.deployment import Deployment, longest_context
from k31ctl.core.plan import PlanRequest
from k31ctl.core.remedies import remedies
from k31ctl.core.request import Parts
from k31ctl.errors import RefusedError, UsageError
from k31ctl.serve.plan_request import LENGTH_FLAGS, first_number
from k31ctl.values import frozen

_STEP_TOKENS: Final = 1024
LENGTH_FLAG: Final = {
    "vllm": "--max-model-len",
    "sglang": "--context-length",
    "tokenspeed": "--max-model-len",
}
COUNT_FLAG: Final = {
    "vllm": "--max-num-seqs",
    "sglang": "--max-running-requests",
    "tokenspeed": "--max-num-seqs",
    "tensorrt-llm": "max_batch_size",
}
_USUAL_COUNT: Final = {"vllm": 1024, "tokenspeed": 160, "tensorrt-llm": 32}
FITS_RULE: Final = "serve-fits"
SOURCE: Final = "the memory model"


@frozen
class Room:
    """What the cache holds: the longest request, and requests of the usual length at once."""

    max_model_len: int
    length_reason: str
    count: int | None
    count_reason: str


def room(
    parts: Parts,
    request: PlanRequest,
    built: Deployment,
    flags: Mapping[str, object],
    *,
    asked_len: int | None,
    batch: int | None = None,
) -> Room:
    """Return the room of a deployment; raises RefusedError where it does not hold what is asked.

    ``batch`` is how many requests are wanted at once; fewer run where no more fit.
    """
    limit = parts.model.max_position_embeddings
    if asked_len is not None and asked_len > limit:
        raise UsageError(
            f"{asked_len:,} tokens are beyond the {limit:,} of {parts.model.name}",
            where="--max-model-len",
            remedy=f"give at most {limit}",
        )
    context = request.contexts[0]
    longest = longest_context(built.pool, limit) if built.loads else 0
    published = first_number(flags, LENGTH_FLAGS)
    wanted = asked_len or int(published or limit)
    if longest < min(context, wanted) or (asked_len and longest < asked_len):
        raise _too_small(parts, request, built, longest, asked_len or context)
    length = min(wanted, longest if longest == limit else longest // _STEP_TOKENS * _STEP_TOKENS)
    reason = f"the cache holds one request of {longest:,} tokens"
    if length == wanted and published and not asked_len:
        reason = f"as published; {reason}"
    usual = min(context, length)
    holds = built.pool.max_requests(usual)
    held = f"the cache holds {holds:,} requests of {usual:,} tokens at once"
    engine = parts.engine.engine
    published_count = first_number(flags, (COUNT_FLAG[engine],))
    count = _count(engine, flags, holds, batch or 0)
    return Room(
        max_model_len=length,
        length_reason=reason,
        count=count,
        count_reason=f"as published; {held}" if count == published_count else held,
    )


def _count(engine: str, flags: Mapping[str, object], holds: int, batch: int) -> int | None:
    """Requests at once: what the recipe says or the engine takes, and no more than fit.

    SGLang counts for itself, except that speculation makes 48 of what is not set.
    """
    published = first_number(flags, (COUNT_FLAG[engine],))
    if engine == "sglang":
        drafts = "--speculative-algorithm" in flags
        most = max(int(published), batch) if published else holds
        return min(most, holds) if published or drafts else None
    return max(1, min(max(int(published or _USUAL_COUNT[engine]), batch), holds))


def _too_small(
    parts: Parts, request: PlanRequest, built: Deployment, longest: int, asked: int
) -> RefusedError:
    ways = remedies(parts, replace(request, contexts=(asked,)), built)
    if longest >= _STEP_TOKENS:
        ways = tuple(way for way in ways if not way.startswith("--context "))
        ways = (f"--max-model-len {longest // _STEP_TOKENS * _STEP_TOKENS} fits", *ways)
        what = f"a request of {asked:,} tokens is more than the cache holds"
    else:
        what = "weights and buffers leave no room for the cache"
    shown = " or ".join(ways).replace("--context ", "--max-model-len ")
    return RefusedError(
        f"{what} on {built.layout.nodes} x {parts.node.id} as {built.layout.text}",
        where=f"{parts.model.id}, {parts.engine.name}",
        remedy=shown or "use more nodes with --nodes, or GPUs with more memory",
        rule=FITS_RULE,
        source=SOURCE,
    )
