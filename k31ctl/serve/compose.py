"""From what was asked to one server: recipe, additions, memory, nodes, each with its reason."""

from collections.abc import Sequence
from dataclasses import replace

from k31ctl.core.deployment import deployment
from k31ctl.core.layout import Layout
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.plan import Plan, plan
from k31ctl.core.recipe import Recipe
from k31ctl.core.request import PlanRequest
from k31ctl.errors import RefusedError
from k31ctl.serve.asked import Asked, Target
from k31ctl.serve.bases import Base, bases
from k31ctl.serve.draft_settings import draft_settings
from k31ctl.serve.dynamo_settings import (
    FRONT_PORT,
    check_dynamo,
    event_settings,
    own_choices,
)
from k31ctl.serve.dynamo_settings import PROGRAMS as DYNAMO_PROGRAMS
from k31ctl.serve.gather import Gathered
from k31ctl.serve.ledger import Ledger
from k31ctl.serve.memory_settings import COUNT_FLAG, FITS_RULE, LENGTH_FLAG, SOURCE, room
from k31ctl.serve.model_settings import basic_settings, cache_settings
from k31ctl.serve.node_settings import EXPERTS, node_settings, size_settings
from k31ctl.serve.plan_request import LENGTH_FLAGS, plan_request
from k31ctl.serve.planned_settings import put_planned
from k31ctl.serve.pool_settings import role_settings
from k31ctl.serve.reasons import flag_reason, variable_reason
from k31ctl.serve.rollout import Departure, Server, Standing
from k31ctl.serve.server_settings import (
    HEALTH,
    METRICS_PORTS,
    PORTS,
    PROGRAMS,
    READY_LINES,
    answer_settings,
    host_variables,
    shared_memory_bytes,
    start_times,
)
from k31ctl.serve.sparse_settings import sparse_settings
from k31ctl.serve.take_recipe import add_overlays, take_recipe


def compose(gathered: Gathered, asked: Asked, *, name: str, first_node: int = 0) -> Server:
    """Return one server; raises RefusedError where the engine refuses it or it does not fit.

    Where the layout is open and the nearest recipe does not fit, the next one is tried.
    """
    refusals: list[tuple[Base, RefusedError]] = []
    for base in bases(gathered, asked):
        try:
            made = _composed(gathered, asked, base, name=name, refused=refusals)
            return replace(made, first_node=first_node)
        except RefusedError as error:
            if error.rule != FITS_RULE:
                raise
            refusals.append((base, error))
    raise refusals[0][1]


def _composed(
    gathered: Gathered,
    asked: Asked,
    base: Base,
    *,
    name: str,
    refused: Sequence[tuple[Base, RefusedError]],
) -> Server:
    recipe, layout = base.recipe, base.layout
    ledger = Ledger()
    for other, error in refused:
        what = f"{other.recipe.id if other.recipe else 'the usual layout'} ({other.layout.text})"
        ledger.departures.append(Departure(what=what, reason=f"not used: {error.what}"))
    basic_settings(ledger, gathered)
    if recipe is not None:
        take_recipe(ledger, gathered, recipe, layout)
    add_overlays(ledger, gathered, asked, layout)
    role_settings(ledger, asked.role, engine=gathered.engine.engine)
    cache_settings(ledger, gathered, asked.kv_dtype)
    put_planned(ledger, gathered.engine.engine, asked.planned)
    sparse_settings(ledger, gathered, asked.kv_dtype, asked.planned.index_dtype)
    _size(ledger, gathered, layout)
    tokens = _speculate(ledger, gathered, asked)
    planned = _fit(ledger, gathered, asked, layout, tokens)
    if asked.target is Target.DYNAMO:
        check_dynamo(gathered)
        event_settings(ledger, gathered)
    else:
        _join_nodes(ledger, gathered, layout)
    answer_settings(ledger, gathered, asked)
    host_variables(ledger, gathered, layout)
    return _server(ledger, gathered, asked, name=name, recipe=recipe, planned=planned)


def _join_nodes(ledger: Ledger, gathered: Gathered, layout: Layout) -> None:
    """Put ranks and addresses, which Dynamo's operator gives by itself."""
    for setting in node_settings(
        gathered.engine.engine,
        layout,
        every_node_answers="--data-parallel-hybrid-lb" in ledger.flags,
    ):
        ledger.put(
            setting.flag,
            setting.value,
            setting.reason,
            source=gathered.engine.layout.source,
            standing=Standing.DERIVED,
            followers_only=setting.followers_only,
        )


def _server(
    ledger: Ledger,
    gathered: Gathered,
    asked: Asked,
    *,
    name: str,
    recipe: Recipe | None,
    planned: Plan,
) -> Server:
    engine = gathered.engine.engine
    dynamo = asked.target is Target.DYNAMO
    program, model_flag = (DYNAMO_PROGRAMS if dynamo else PROGRAMS)[engine]
    low, high = start_times(gathered.storage, gathered.startup, planned)
    port = FRONT_PORT if dynamo else asked.port or PORTS[engine]
    return Server(
        name=name,
        program=program,
        model_flag=model_flag,
        choices=(
            *ledger.choices(gathered.catalog),
            *(own_choices(ledger, asked.role, engine) if dynamo else ()),
        ),
        variables=ledger.exports(),
        departures=tuple(ledger.departures),
        recipe=recipe,
        plan=planned,
        port=port,
        health=HEALTH[engine],
        first_node=0,
        num_nodes=planned.layout.nodes,
        gpus_per_node=planned.layout.gpus_per_node,
        shared_memory_bytes=shared_memory_bytes(gathered),
        start_low_s=low,
        start_high_s=high,
        ready_line=READY_LINES[engine],
        metrics_port=METRICS_PORTS.get(engine, port),
    )


def _size(ledger: Ledger, gathered: Gathered, layout: Layout) -> None:
    for flag, value in size_settings(gathered.engine.engine, layout).items():
        if flag == "--expert-parallel-size" and EXPERTS in ledger.flags:
            continue
        ledger.settle(
            flag,
            value,
            flag_reason(flag),
            source=gathered.engine.layout.source,
            standing=Standing.DERIVED,
        )


def _speculate(ledger: Ledger, gathered: Gathered, asked: Asked) -> int | None:
    """Put the draft's settings; returns the tokens that it proposes."""
    draft = gathered.parts.draft
    if draft is None:
        return None
    tokens = asked.draft_tokens or draft.draft_tokens
    made = draft_settings(
        gathered.engine.engine,
        draft,
        tokens=tokens,
        flags=ledger.values,
        role=asked.role,
        gpu=gathered.node.gpu.architecture,
    )
    for flag, value in made.items():
        ledger.put(flag, value, flag_reason(flag), source=draft.source, standing=Standing.ASKED)
    if gathered.engine.engine == "sglang" and "--dcp-size" in ledger.flags:
        name = "SGLANG_RAGGED_VERIFY_MODE"
        ledger.export(
            name,
            "static",
            variable_reason(name),
            source="SGLang 0.5.23 srt/arg_groups",
            standing=Standing.DERIVED,
        )
    return tokens


def _fit(
    ledger: Ledger, gathered: Gathered, asked: Asked, layout: Layout, tokens: int | None
) -> Plan:
    """Put the longest request and the number of requests that the memory model allows."""
    engine, parts = gathered.engine.engine, gathered.parts
    request = plan_request(
        ledger.values,
        layout=AskedLayout(
            nodes=layout.nodes,
            tp=layout.tp,
            pp=layout.pp,
            dp=layout.dp,
            ep=layout.ep,
            dcp=layout.dcp,
        ),
        context_tokens=asked.context_tokens,
        max_model_len=None,
        draft_tokens=tokens,
    )
    there = room(
        parts,
        request,
        deployment(parts, request),
        ledger.values,
        asked_len=asked.max_model_len,
        batch=asked.planned.batch,
    )
    standing = Standing.ASKED if asked.max_model_len else Standing.DERIVED
    flag = LENGTH_FLAG[engine]
    whole = there.max_model_len == parts.model.max_position_embeddings
    if not whole or engine == "vllm" or any(name in ledger.flags for name in LENGTH_FLAGS):
        ledger.settle(
            flag, there.max_model_len, there.length_reason, source=SOURCE, standing=standing
        )
    if there.count is not None:
        ledger.settle(
            COUNT_FLAG[engine],
            there.count,
            there.count_reason,
            source=SOURCE,
            standing=Standing.DERIVED,
        )
    return _planned(gathered, request, there.max_model_len)


def _planned(gathered: Gathered, request: PlanRequest, max_model_len: int) -> Plan:
    context = min(request.contexts[0], max_model_len)
    asked = replace(request, contexts=(context,), max_model_len=max_model_len)
    return plan(gathered.parts, asked)
