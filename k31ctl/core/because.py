"""Why one candidate beat another, in one sentence with numbers."""

from collections.abc import Sequence
from typing import Final, assert_never

from k31ctl.core.goal import Goal
from k31ctl.core.performance import decode_parts_of, prefill_parts_of
from k31ctl.core.search import Candidate
from k31ctl.core.step import Part

ALONE: Final = "no other layout or hardware keeps to what was asked"
SAME_PERCENT: Final = 0.05
WHOLE_PERCENT: Final = 2
CROWDED: Final = 1.2

_WORDS: Final = {
    "dense": "weights that every token uses",
    "experts": "expert weights",
    "attention": "attention",
    "index": "the indexer",
    "state": "recurrent states",
    "linear": "linear attention",
    "activations": "activations",
    "launch": "kernel launches",
    "all_reduce": "all-reduces",
    "all_to_all": "sending tokens to their experts",
    "pipeline": "hops between stages",
    "step": "scheduling",
    "draft": "the draft model",
}
_NETWORKED: Final = ("all_reduce", "all_to_all", "pipeline")


def because(
    goal: Goal, chosen: Candidate, other: Candidate | None, *, candidates: Sequence[Candidate]
) -> str:
    """What decided against the best candidate on another layout or hardware."""
    if other is None:
        return ALONE
    name = _name(chosen, other)
    lead = _lead(goal, chosen, other)
    if lead is None:
        return f"as good as {name}; {_fewer(chosen, other)}"
    return f"{lead} than {name}, {_cause(goal, chosen, other, candidates)}"


def _name(chosen: Candidate, other: Candidate) -> str:
    engine = other.option.parts.engine
    same = engine.id == chosen.option.parts.engine.id
    return other.option.text if same else f"{other.option.text} under {engine.name}"


def _fewer(chosen: Candidate, other: Candidate) -> str:
    if chosen.option.num_gpus < other.option.num_gpus:
        return f"it takes {chosen.option.num_gpus} GPUs instead of {other.option.num_gpus}"
    return "of equals the first in the search is taken"


def _lead(goal: Goal, chosen: Candidate, other: Candidate) -> str | None:
    """By how much the chosen is ahead; None where they differ by less than 0.05 %."""
    match goal:
        case Goal.THROUGHPUT:
            return _more(
                chosen.output_tok_s_per_gpu, other.output_tok_s_per_gpu, "tokens/s per GPU"
            )
        case Goal.LATENCY:
            return _less(chosen.tpot_s, other.tpot_s, "time per token") or _less(
                chosen.ttft_s, other.ttft_s, "time to first token"
            )
        case Goal.COST:
            mine, theirs = chosen.usd_per_m_total_tokens, other.usd_per_m_total_tokens
            return _less(mine or 0.0, theirs or 0.0, "cost per token")
        case Goal.CONTEXT:
            mine, theirs = chosen.option.longest_context, other.option.longest_context
            return _more(mine, theirs, "context") or _faster(chosen, other)
    assert_never(goal)


def _faster(chosen: Candidate, other: Candidate) -> str | None:
    return _more(chosen.output_tok_s_per_gpu, other.output_tok_s_per_gpu, "tokens/s per GPU")


def _more(mine: float, theirs: float, words: str) -> str | None:
    percent = 100 * (mine / theirs - 1) if theirs else 100.0
    return f"{_percent(percent)} more {words}" if percent >= SAME_PERCENT else None


def _less(mine: float, theirs: float, words: str) -> str | None:
    percent = 100 * (1 - mine / theirs) if theirs else 0.0
    return f"{_percent(percent)} less {words}" if percent >= SAME_PERCENT else None


def _percent(percent: float) -> str:
    return f"{percent:,.0f} %" if percent >= WHOLE_PERCENT else f"{percent:.1f} %"


def _cause(goal: Goal, chosen: Candidate, other: Candidate, candidates: Sequence[Candidate]) -> str:
    mine, theirs = chosen.option, other.option
    if goal is Goal.CONTEXT and mine.longest_context != theirs.longest_context:
        return f"whose cache ends at {theirs.longest_context:,} tokens"
    prices = mine.usd_per_gpu_hour, theirs.usd_per_gpu_hour
    if goal is Goal.COST and None not in prices:
        spent = [sum(_spent(goal, each).values()) for each in (chosen, other)]
        if spent[1] <= spent[0]:
            return f"whose GPU-hour costs ${prices[1]:.2f} against ${prices[0]:.2f}"
    if goal is not Goal.LATENCY:
        crowd = _crowd(chosen, other, candidates)
        if crowd:
            return crowd
    return _part(goal, chosen, other)


def _crowd(chosen: Candidate, other: Candidate, candidates: Sequence[Candidate]) -> str:
    """Whether fewer requests share each GPU's work, and why no more may; empty where as many do."""
    mine = chosen.concurrency / chosen.option.num_gpus
    theirs = other.concurrency / other.option.num_gpus
    if mine < CROWDED * theirs:
        return ""
    beyond = [
        c
        for c in candidates
        if c.option is other.option and c.concurrency > other.concurrency and c.excess > 1
    ]
    reason = "more would break the service levels" if beyond else "its cache holds no more"
    length = other.workload.prompt_tokens + other.workload.output_tokens
    most = other.option.pool.max_requests(length) * other.option.layout.dp
    if not beyond and most >= CROWDED * other.concurrency:
        return ""
    return (
        f"which runs {other.concurrency} requests on {other.option.num_gpus} GPUs where "
        f"{chosen.concurrency} run here on {chosen.option.num_gpus}: {reason}"
    )


def _part(goal: Goal, chosen: Candidate, other: Candidate) -> str:
    """The part of the work on which the other spends most beyond what the chosen does."""
    mine, theirs = _spent(goal, chosen), _spent(goal, other)
    name = max(theirs, key=lambda part: theirs[part] - mine.get(part, 0.0))
    if theirs[name] <= mine.get(name, 0.0):
        return "which is a little slower in every part"
    words = _words(name, other)
    if goal is Goal.LATENCY:
        return (
            f"which spends {1000 * theirs[name]:.2g} ms a token on {words} "
            f"(here {1000 * mine.get(name, 0.0):.2g} ms)"
        )
    return (
        f"which spends {theirs[name]:.2g} GPU-seconds a request on {words} "
        f"(here {mine.get(name, 0.0):.2g})"
    )


def _words(name: str, candidate: Candidate) -> str:
    kind, _, part = name.partition(" ")
    layout = candidate.option.layout
    words = _WORDS.get(part, part)
    across = layout.world // (layout.pp if part != "pipeline" else 1) > max(
        candidate.option.parts.node.num_gpus, candidate.option.parts.node.scale_up_domain_gpus
    )
    if part in _NETWORKED and across:
        words += " across the network"
    return f"{words} in prefill" if kind == "prefill" else words


def _spent(goal: Goal, candidate: Candidate) -> dict[str, float]:
    """Seconds by part of prefill and decoding: of each token, or of all GPUs for each request.

    Waiting of stages for one another is shared among the parts by their time.
    """
    service, workload, option = candidate.service, candidate.workload, candidate.option
    decode = service.period_s - service.prefill_s
    prefill = service.prefill_s
    if goal is Goal.LATENCY:
        tokens = max(1, workload.output_tokens - 1)
        scale = 1 / tokens
        prefill = (service.prefill_s - service.first_s) / 2
    else:
        scale = option.num_gpus / (service.running * option.layout.dp)
    found: dict[str, float] = {}
    _add(
        found,
        "decode",
        decode_parts_of(option.case, option.step, workload, service),
        decode * scale,
    )
    parts, _ = prefill_parts_of(option.case, option.step, workload, service)
    _add(found, "prefill", parts, prefill * scale)
    return found


def _add(found: dict[str, float], kind: str, parts: Sequence[Part], seconds: float) -> None:
    total = sum(part.seconds for part in parts)
    for part in parts:
        found[f"{kind} {part.name}"] = seconds * part.seconds / total
