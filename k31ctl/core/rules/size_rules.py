"""Rules about sizes: what divides what, how many GPUs there are, whether it fits into them."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import FRACTION_FLAGS, SIZE_FLAGS, FileKind, LaunchContext
from k31ctl.core.rules.memory_fit import Fit, fit, weights_bytes
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit
from k31ctl.errors import RefusedError
from k31ctl.units import show_bytes

_TP: Final = SIZE_FLAGS[:3]
_LAYOUT: Final = (
    *SIZE_FLAGS,
    "--decode-context-parallel-size",
    "--dcp-size",
    "--enable-expert-parallel",
    "--expert-parallel-size",
    "--ep-size",
)
_OWN_RULES: Final = (
    "layout-heads",
    "layout-world",
    "layout-attention-dp",
    "engine-architecture",
    "engine-gpu",
    "engine-sparse-gpu",
    "draft-engine",
)
_SERVED_BY_DRAFT: Final = "layout-pipeline"


def _heads(context: LaunchContext) -> Iterable[Hit]:
    model, tp = context.model, context.attention_tp
    if model is None:
        return NOTHING
    heads = model.latent.num_heads
    if model.linear is not None and heads % tp == 0:
        heads = model.linear.num_heads
    if heads % tp == 0:
        return NOTHING
    near = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
    return hit(
        context,
        f"tensor parallelism {tp} does not divide the {heads} attention heads of {model.name}",
        *_TP,
        remedy=f"use one of {near}",
    )


def _attention_groups(context: LaunchContext) -> Iterable[Hit]:
    tp, groups = context.size("tp"), context.attention_dp
    if tp % groups == 0:
        return NOTHING
    message = f"attention data parallelism {groups} does not divide tensor parallelism {tp}"
    return hit(context, message, "--attn-dp-size", "--dp-size")


def _context_parallel(context: LaunchContext) -> Iterable[Hit]:
    tp, dcp = context.attention_tp, context.size("dcp")
    if tp % dcp == 0:
        return NOTHING
    message = f"decode-context parallelism {dcp} does not divide tensor parallelism {tp}"
    fitting = ", ".join(str(n) for n in range(1, tp + 1) if tp % n == 0)
    flags = ("--decode-context-parallel-size", "--dcp-size")
    return hit(context, message, *flags, remedy=f"use one of {fitting}")


def _too_many_ranks(context: LaunchContext) -> Iterable[Hit]:
    node = context.node
    if node is None or not context.nodes:
        return NOTHING
    there = context.nodes * node.num_gpus
    if context.ranks <= there:
        return NOTHING
    needed = -(-context.ranks // node.num_gpus)
    where = "" if context.nodes == 1 else f"{context.nodes} x "
    return hit(
        context,
        f"the layout takes {context.ranks} GPUs, and {where}{node.id} has {there}",
        *SIZE_FLAGS,
        remedy=f"use {needed} nodes with --nnodes {needed}, or a smaller layout",
    )


def _idle_gpus(context: LaunchContext) -> Iterable[Hit]:
    node = context.node
    if node is None or not context.nodes or context.ranks >= context.nodes * node.num_gpus:
        return NOTHING
    there = context.nodes * node.num_gpus
    if context.nodes == 1 and context.kind is FileKind.KUBERNETES:
        return NOTHING
    return hit(context, f"the layout uses {context.ranks} of {there} GPUs", *SIZE_FLAGS)


def _out_of_range(context: LaunchContext) -> Iterable[Hit]:
    for flag in SIZE_FLAGS:
        if context.has(flag) and not context.is_open(flag) and context.number(flag, 1) < 1:
            return hit(context, f"{flag} {context.value(flag)} is below 1", flag)
    for flag in FRACTION_FLAGS:
        if context.is_open(flag) or not context.has(flag):
            continue
        if not 0 < context.number(flag, 1) <= 1:
            message = f"{flag} {context.value(flag)} is not a fraction between 0 and 1"
            return hit(context, message, flag, remedy=f"write {flag} 0.9")
    return NOTHING


def _stage_too_small(context: LaunchContext) -> Iterable[Hit]:
    model, pp = context.model, context.size("pp")
    if model is None or pp <= model.num_layers:
        return NOTHING
    return hit(
        context,
        f"{pp} pipeline stages are more than the {model.num_layers} layers",
        "--pipeline-parallel-size",
        "--pp-size",
    )


def _refused(context: LaunchContext) -> Iterable[Hit]:
    found = _fit_of_sizes(context)
    if found is None or not isinstance(found.refusal, RefusedError):
        return NOTHING
    if found.refusal.rule in (*_OWN_RULES, _SERVED_BY_DRAFT):
        return NOTHING
    return hit(context, found.refusal.what, *_LAYOUT, remedy=found.refusal.remedy)


def _too_large(context: LaunchContext) -> Iterable[Hit]:
    found = _fit_of_sizes(context)
    if found is None or found.built is None or found.loads:
        return NOTHING
    stage, node = found.tightest, context.node
    assert stage is not None
    assert node is not None
    return hit(
        context,
        f"the model does not fit into memory: its weights take {show_bytes(weights_bytes(stage))} "
        f"of each GPU, and {found.fraction:g} of {node.gpu.name} is "
        f"{show_bytes(int(found.fraction * stage.capacity_bytes))}",
        *SIZE_FLAGS,
        remedy="use more GPUs or GPUs with more memory; k31ctl plan says how many",
    )


def _longest_too_long(context: LaunchContext) -> Iterable[Hit]:
    found = _fit_of_sizes(context)
    if found is None or not found.loads or found.holds_longest:
        return NOTHING
    if context.number("--max-model-len", 0) < 0:
        return NOTHING
    return hit(
        context,
        f"one request of {found.max_model_len:,} tokens does not fit: it caches "
        f"{show_bytes(int(found.longest_bytes))} on each GPU, the weights leave "
        f"{show_bytes(int(found.room_bytes))}, and vLLM refuses to start",
        "--max-model-len",
        remedy="lower --max-model-len, or write --max-model-len auto; k31ctl plan says how far",
    )


def _tight(context: LaunchContext) -> Iterable[Hit]:
    found = _fit_of_sizes(context)
    if found is None or found.built is None or not found.loads or context.name != "vllm":
        return NOTHING
    if not found.holds_longest or found.built.pool.max_requests(found.max_model_len) >= 1:
        return NOTHING
    return hit(
        context,
        f"the planner, which assumes some of the buffers, finds no room for one request of "
        f"{found.max_model_len:,} tokens",
        "--max-model-len",
    )


def _fit_of_sizes(context: LaunchContext) -> Fit | None:
    """What the planner says, where the GPUs are as many as the layout takes."""
    node = context.node
    if node is None or not context.nodes or not context.launch.accepted:
        return None
    if any(_out_of_range(context)):
        return None
    if context.ranks > context.nodes * node.num_gpus:
        return None
    return fit(context)


ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_PLANNER: Final = "k31ctl plan, docs/model.md"
SIZE_RULES: Final = (
    Rule(
        id="number-out-of-range",
        severity=ERROR,
        about="a size is below 1, or a share of the memory not between 0 and 1",
        remedy="write a number in range",
        source="vLLM 0.33.0 config/parallel.py and config/cache.py; SGLang 0.5.23 server_args.py",
        check=_out_of_range,
    ),
    Rule(
        id="layout-heads",
        severity=ERROR,
        about="tensor parallelism does not divide the attention heads",
        remedy="use a divisor of the heads",
        source="vLLM 0.33.0 config/model.py; SGLang 0.5.23 srt/models/kimi_k3.py",
        check=_heads,
    ),
    Rule(
        id="layout-attention-dp",
        severity=ERROR,
        about="attention data parallelism does not divide tensor parallelism",
        remedy="use a divisor of --tp-size",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_attention_groups,
        engines=("sglang",),
    ),
    Rule(
        id="layout-context-parallel",
        absence=True,
        severity=ERROR,
        about="decode-context parallelism does not divide tensor parallelism",
        remedy="use a divisor of the tensor-parallel size",
        source="vLLM 0.33.0 config/parallel.py",
        check=_context_parallel,
    ),
    Rule(
        id="layout-stages",
        severity=ERROR,
        about="there are more pipeline stages than layers",
        remedy="use fewer stages",
        source="vLLM 0.33.0 distributed/utils.py",
        check=_stage_too_small,
    ),
    Rule(
        id="layout-world",
        severity=ERROR,
        about="the layout takes more GPUs than there are",
        remedy="use more nodes or a smaller layout",
        source="vLLM 0.33.0 config/parallel.py; SGLang 0.5.23 srt/server_args.py",
        check=_too_many_ranks,
    ),
    Rule(
        id="layout-idle-gpus",
        absence=True,
        severity=INFO,
        about="the layout leaves GPUs of the nodes idle",
        remedy="use a layout of all GPUs, or start one server for each part",
        source=_PLANNER,
        check=_idle_gpus,
    ),
    Rule(
        id="layout-refused",
        absence=True,
        severity=ERROR,
        about="the engine takes no such layout of this model",
        remedy="use a layout that it takes",
        source=_PLANNER,
        check=_refused,
    ),
    Rule(
        id="memory-weights",
        absence=True,
        severity=ERROR,
        about="weights and buffers leave no room for any cache",
        remedy="use more GPUs or GPUs with more memory",
        source="vllm-project/recipes#698; k31ctl plan, docs/model.md",
        check=_too_large,
        failures=(1,),
    ),
    Rule(
        id="memory-longest",
        absence=True,
        severity=ERROR,
        about="one request of --max-model-len does not fit into the cache",
        remedy="lower --max-model-len",
        source="vLLM 0.33.0 v1/core/kv_cache_utils.py; k31ctl plan, docs/model.md",
        check=_longest_too_long,
        engines=("vllm",),
        failures=(1,),
    ),
    Rule(
        id="memory-tight",
        absence=True,
        severity=INFO,
        about="one request of --max-model-len may not fit, if buffers are what the planner assumes",
        remedy="compare with k31ctl plan, and lower --max-model-len if the start fails",
        source=_PLANNER,
        check=_tight,
        engines=("vllm",),
    ),
)
