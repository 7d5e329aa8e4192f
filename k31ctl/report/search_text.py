"""A search for a person at a terminal: what to take and why, then the fronts, in 80 columns."""

from collections.abc import Sequence
from textwrap import wrap

from k31ctl.core.fleet import Fleet, Running
from k31ctl.core.goal import Goal
from k31ctl.core.goals import Recommendation
from k31ctl.core.search import Candidate
from k31ctl.core.searched import LoadAnswer, Searched
from k31ctl.report.scatter import scatter
from k31ctl.report.speed_text import number

WIDTH = 80
MS = 1e3
MOST_FRONT = 12
MOST_DOTS = 2000
NAME_WIDTH = 30
MARKS = {Goal.THROUGHPUT: "T", Goal.LATENCY: "L", Goal.COST: "C", Goal.CONTEXT: "X"}


def search_text(found: Searched) -> str:
    """The whole answer as text with a final newline."""
    lines: list[str] = []
    for answer in found.loads:
        lines += [*_load_lines(found, answer), ""]
    lines += _left_out(found)
    return "\n".join(lines) + "\n"


def _load_lines(found: Searched, answer: LoadAnswer) -> list[str]:
    load = answer.load.workload
    cached = f" ({load.cached_fraction:.0%} cached)" if load.cached_fraction else ""
    lines = _wrapped(
        f"{found.result.space.model.name}, {load.prompt_tokens:,} tokens{cached} in and "
        f"{load.output_tokens:,} out{_limits(found)}",
        indent="",
    )
    if answer.why_not:
        return lines + _wrapped(f"nothing to recommend: {answer.why_not}", indent="  ")
    made = sorted(answer.recommendations, key=lambda r: r.goal is not found.goal)
    for each in made:
        lines += ["", *_recommendation(each)]
    if answer.fleet is not None:
        lines += ["", *_fleet_lines(answer.fleet)]
    lines += ["", *_chart(answer), "", *_table(answer.load.speed_front, _speed_row, _SPEED_HEAD)]
    if answer.load.cost_front:
        lines += ["", *_table(answer.load.cost_front, _cost_row, _COST_HEAD)]
    return lines


def _limits(found: Searched) -> str:
    limits = ", ".join(f"{each.name} <= {each.at_most_s:g}" for each in found.result.slo.limits)
    return f", within {limits}" if limits else ""


def _recommendation(made: Recommendation) -> list[str]:
    chosen = made.chosen
    lines = _wrapped(f"{made.goal} ({MARKS[made.goal]}): {_whole_name(chosen)}", indent="")
    lines += _wrapped(_numbers(chosen, made.goal), indent="  ")
    lines += _wrapped(made.because, indent="  ")
    other = made.elsewhere
    if other is not None and other is not made.runner_up:
        lines += _wrapped(
            f"best on other hardware: {other.option.text}, {_numbers(other, made.goal)}",
            indent="  ",
        )
    return lines


def _whole_name(candidate: Candidate) -> str:
    option = candidate.option
    draft = f", draft {option.parts.draft.id}" if option.parts.draft else ""
    state = f", states {option.state_dtype}" if option.parts.model.linear else ""
    return (
        f"{option.text} under {option.parts.engine.name}, cache {option.kv_format}{state}{draft}, "
        f"chunks of {option.chunk_tokens:,}, {candidate.concurrency:,} at once"
    )


def _numbers(candidate: Candidate, goal: Goal) -> str:
    cost = candidate.usd_per_m_total_tokens
    text = (
        f"{number(candidate.output_tok_s_per_gpu)} tokens/s per GPU, "
        f"{number(candidate.tok_s_per_user)} per user, TTFT {number(candidate.ttft_s)} s, "
        f"TPOT {number(candidate.tpot_s * MS)} ms"
    )
    if cost is not None:
        text += f", ${number(cost)} per million tokens"
    if goal is Goal.CONTEXT:
        text = f"up to {candidate.option.longest_context:,} tokens in one request; {text}"
    return text


def _chart(answer: LoadAnswer) -> list[str]:
    load = answer.load
    step = max(1, len(load.kept) // MOST_DOTS)
    points = [(c.tok_s_per_user, c.output_tok_s_per_gpu, ".") for c in load.kept[::step]]
    points += [(c.tok_s_per_user, c.output_tok_s_per_gpu, "o") for c in load.speed_front]
    points += [
        (r.chosen.tok_s_per_user, r.chosen.output_tok_s_per_gpu, MARKS[r.goal])
        for r in reversed(answer.recommendations)
    ]
    return scatter(
        points, across="output tokens/s per user", up="output tokens/s per GPU (o: best trades)"
    )


_SPEED_HEAD = ("at once", "/s/GPU", "/s/user", "TTFT s")
_COST_HEAD = ("at once", "$/M tok", "TTFT s", "TPOT ms")


def _speed_row(c: Candidate) -> tuple[str, ...]:
    return (
        f"{c.concurrency:,}",
        number(c.output_tok_s_per_gpu),
        number(c.tok_s_per_user),
        number(c.ttft_s),
    )


def _cost_row(c: Candidate) -> tuple[str, ...]:
    cost = number(c.usd_per_m_total_tokens or 0.0)
    return f"{c.concurrency:,}", cost, number(c.ttft_s), number(c.tpot_s * MS)


def _table(front: Sequence[Candidate], row_of: object, head: Sequence[str]) -> list[str]:
    assert callable(row_of)
    kept = _thinned(front)
    lines = [_line("best trades", "engine, cache", head)]
    for candidate in kept:
        option = candidate.option
        nodes = f"{option.layout.nodes} x " if option.layout.nodes > 1 else ""
        name = f"{option.layout.text} {nodes}{option.parts.node.id}"
        if len(name) > NAME_WIDTH:
            lines.append(f"  {name}")
            name = ""
        engine = f"{option.parts.engine.engine[:8]} {str(option.kv_format)[:5]}"
        lines.append(_line(name, engine, row_of(candidate)))
    if len(kept) < len(front):
        lines.append(f"  and {len(front) - len(kept)} more between them: see --json or --csv")
    return lines


def _line(name: str, engine: str, values: Sequence[str]) -> str:
    return f"  {name:<{NAME_WIDTH}} {engine:<14}{''.join(f'{value:>8}' for value in values)}"


def _thinned(front: Sequence[Candidate]) -> list[Candidate]:
    """Both ends and an even choice between them."""
    if len(front) <= MOST_FRONT:
        return list(front)
    last = len(front) - 1
    return [front[round(i * last / (MOST_FRONT - 1))] for i in range(MOST_FRONT)]


def _fleet_lines(made: Fleet) -> list[str]:
    load = made.load
    lines = _wrapped(
        f"fleet: {made.replicas:,} x {made.of.option.text}, {made.num_gpus:,} GPUs"
        + (f", ${made.usd_per_hour:,.2f} an hour" if made.usd_per_hour is not None else ""),
        indent="",
    )
    lines += _wrapped(
        f"{load.users:,.0f} users, {100 * load.active_fraction:g} % of them active with "
        f"{load.requests_per_hour:g} requests an hour, are {number(made.requests_per_s)} "
        f"requests/s and {made.needed_concurrency:,.1f} at once; with "
        f"{100 * load.headroom_fraction:g} % headroom and {load.spare} spare",
        indent="  ",
    )
    lines += _wrapped(f"usually {_state(made.usual)}", indent="  ")
    lines += _wrapped(f"with one failed {_state(made.one_failed)}", indent="  ")
    return lines


def _state(made: Running) -> str:
    if not made.replicas:
        return "nothing is left"
    if made.service is None:
        return f"{made.replicas:,} cannot keep up: {made.utilisation:.0%} of what they serve"
    kept = "within the limits" if made.kept else "outside the limits"
    return (
        f"{made.replicas:,} replicas run {made.concurrency:,} requests each, "
        f"{made.utilisation:.0%} of what they serve, TTFT {number(made.service.ttft_s)} s, "
        f"TPOT {number(made.service.tpot_s * MS)} ms, {kept}"
    )


def _left_out(found: Searched) -> list[str]:
    result = found.result
    text = (
        f"searched {result.num_options:,} deployments under {result.num_evaluated:,} loads; left "
        f"out: {result.too_large:,} whose weights do not load, {result.full:,} loads that a cache "
        f"does not hold, {result.idle:,} too small to occupy every attention group"
    )
    if result.refused:
        rules = ", ".join(f"{rule} {count:,}" for rule, count in result.refused.items())
        text += f", and by rule {rules}"
    return _wrapped(text, indent="")


def _wrapped(text: str, *, indent: str) -> list[str]:
    return wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
