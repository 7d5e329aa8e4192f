"""Which layouts an engine refuses, by which rule, and what the nearest legal layout is."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import log2

from k31ctl.core.draft import Draft
from k31ctl.core.engine import DataParallel, Engine, ExpertParallel
from k31ctl.core.hardware import Node
from k31ctl.core.layout import Layout
from k31ctl.core.linear_layers import FP8_BLOCK, MXFP4_GROUP
from k31ctl.core.model import Model, SparseLatentAttention, WeightFormat
from k31ctl.errors import RefusedError, UsageError
from k31ctl.values import frozen

ONE_PROCESS = "stages"
MOST_RANKS = 4096
WIDEST_USUAL_TP = 32
NO_LAYOUT = "no layout of these GPUs is legal: change --nodes or --on"


@frozen
class Case:
    """What a rule looks at."""

    model: Model
    engine: Engine
    layout: Layout
    has_draft: bool


def _world(case: Case) -> str:
    lay = case.layout
    if lay.world > lay.num_gpus:
        return f"{lay.text} needs {lay.world} GPUs, there are {lay.num_gpus}"
    return ""


def _one_node(case: Case) -> str:
    if case.engine.layout.multi_node == ONE_PROCESS and case.layout.nodes > 1:
        return f"{case.engine.name} is one process on one node, not on {case.layout.nodes}"
    return ""


def _attention_dp(case: Case) -> str:
    lay = case.layout
    if lay.data_parallel is DataParallel.ATTENTION and lay.tp % lay.dp:
        return f"attention data parallelism {lay.dp} does not divide TP {lay.tp}"
    return ""


def _heads(case: Case) -> str:
    tp = case.layout.attention_tp
    named = {"latent attention": case.model.latent.num_heads}
    if case.model.linear is not None:
        named["KDA"] = case.model.linear.num_heads
    for kind, heads in named.items():
        if heads % tp:
            return f"attention TP {tp} does not divide the {heads} heads of {kind}"
    return ""


def _pipeline(case: Case) -> str:
    pp = case.layout.pp
    if pp > 1 and not case.engine.layout.pipeline:
        return f"{case.engine.name} does not run this model in {pp} pipeline stages"
    if pp > case.model.num_layers:
        return f"{pp} pipeline stages are more than {case.model.num_layers} layers"
    if pp > 1 and case.has_draft and not case.engine.layout.draft_with_pipeline:
        return f"{case.engine.name} does not speculate with a draft under pipeline parallelism"
    return ""


def _context(case: Case) -> str:
    lay, rules = case.layout, case.engine.layout
    if lay.dcp > 1 and not rules.decode_context_parallel:
        return f"{case.engine.name} has no decode-context parallelism for this model"
    if lay.attention_tp % lay.dcp:
        return (
            f"decode-context parallelism {lay.dcp} does not divide attention TP {lay.attention_tp}"
        )
    if lay.dcp > 1 and case.has_draft and not rules.decode_context_parallel_with_draft:
        return f"{case.engine.name} refuses a draft together with decode-context parallelism"
    return ""


_EXPERT_SIZES = {
    ExpertParallel.WORLD: "1 or all ranks of a stage (TP x DP)",
    ExpertParallel.DIVIDES_TENSOR: "a divisor of the tensor-parallel size",
    ExpertParallel.TENSOR_OR_ONE: "1 or the tensor-parallel size",
    ExpertParallel.TENSOR: "the tensor-parallel size",
    ExpertParallel.NONE: "1",
}


def _expert_sizes(case: Case) -> str:
    lay, rules = case.layout, case.engine.layout
    legal = {
        ExpertParallel.WORLD: lambda: lay.ep in (1, lay.expert_world),
        ExpertParallel.DIVIDES_TENSOR: lambda: lay.tp % lay.ep == 0,
        ExpertParallel.TENSOR_OR_ONE: lambda: lay.ep in (1, lay.tp),
        ExpertParallel.TENSOR: lambda: lay.ep == lay.tp,
        ExpertParallel.NONE: lambda: lay.ep == 1,
    }
    if not legal[rules.expert_parallel]():
        return (
            f"{case.engine.name} takes EP as {_EXPERT_SIZES[rules.expert_parallel]}, not {lay.ep}"
        )
    if lay.dp == 1 and rules.expert_sizes and lay.ep not in rules.expert_sizes:
        sizes = ", ".join(map(str, rules.expert_sizes))
        return f"{case.engine.name} takes EP {sizes} for this model, not {lay.ep}"
    if case.model.experts is not None and lay.ep > case.model.experts.num_experts:
        return f"EP {lay.ep} is more than {case.model.experts.num_experts} experts"
    return ""


def _expert_width(case: Case) -> str:
    experts = case.model.experts
    if experts is None:
        return ""
    step = {
        WeightFormat.MXFP4: MXFP4_GROUP,
        WeightFormat.INT4: MXFP4_GROUP,
        WeightFormat.FP8_BLOCK: FP8_BLOCK,
        WeightFormat.BF16: 1,
    }[experts.format]
    width, tp = experts.moe_intermediate_size, case.layout.expert_tp
    if width % (tp * step):
        return (
            f"{tp} ranks share one expert, and its width {width} does not divide into them "
            f"in whole groups of {step}"
        )
    return ""


RULES: dict[str, Callable[[Case], str]] = {
    "layout-one-node": _one_node,
    "layout-world": _world,
    "layout-attention-dp": _attention_dp,
    "layout-heads": _heads,
    "layout-pipeline": _pipeline,
    "layout-context-parallel": _context,
    "layout-expert-parallel": _expert_sizes,
    "layout-expert-width": _expert_width,
}


def broken_rule(case: Case) -> tuple[str, str] | None:
    """The first rule that a layout breaks, as (id, why), or None where it is legal."""
    for rule, check in RULES.items():
        if why := check(case):
            return rule, why
    return None


def checked(case: Case) -> Layout:
    """The layout itself where the engine takes it; raises RefusedError with the nearest legal."""
    found = broken_rule(case)
    if found is None:
        return case.layout
    rule, why = found
    near = nearest_legal(case)
    remedy = f"the nearest layout that it takes is {flags(near)}" if near else NO_LAYOUT
    raise RefusedError(
        why,
        where=f"{case.model.id} as {case.layout.text} on {case.layout.num_gpus} GPUs",
        remedy=remedy,
        rule=rule,
        source=case.engine.layout.source,
    )


def flags(layout: Layout) -> str:
    """The layout as flags of this program."""
    sizes = {"tp": layout.tp, "pp": layout.pp, "dp": layout.dp, "ep": layout.ep, "dcp": layout.dcp}
    return " ".join(f"--{k} {v}" for k, v in sizes.items() if v > 1 or k == "tp")


def nearest_legal(case: Case) -> Layout | None:
    """The legal layout that uses as many of the GPUs and whose sizes are nearest in ratio."""
    asked = case.layout
    wanted = min(asked.world, asked.num_gpus)

    def distance(layout: Layout) -> tuple[bool, float, int]:
        sizes = ("tp", "pp", "dp", "ep", "dcp")
        pairs = ((getattr(layout, name), getattr(asked, name)) for name in sizes)
        apart = sum(abs(log2(a / max(1, b))) for a, b in pairs)
        return layout.world != wanted, apart, -layout.world

    legal = (lay for lay in _candidates(case) if broken_rule(replace(case, layout=lay)) is None)
    return min(legal, key=distance, default=None)


def _candidates(case: Case) -> Iterator[Layout]:
    asked, num_gpus = case.layout, case.layout.num_gpus
    for tp in _divisors(num_gpus):
        for pp in _divisors(num_gpus // tp):
            inner = (
                _divisors(num_gpus // tp // pp)
                if asked.data_parallel is DataParallel.GROUPS
                else _divisors(tp)
            )
            for dp in inner:
                for ep in sorted({1, tp, tp * dp, asked.ep}):
                    for dcp in sorted({1, asked.dcp, tp}):
                        sized = replace(asked, tp=tp, pp=pp, dp=dp, ep=ep, dcp=dcp)
                        if sized.expert_world % ep == 0 and dp <= sized.expert_world:
                            yield sized


def _divisors(number: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, min(number, 1024) + 1) if number % d == 0)


@frozen
class AskedLayout:
    """Sizes as the user gave them; None is left to the planner."""

    nodes: int
    tp: int | None
    pp: int | None
    dp: int | None
    ep: int | None
    dcp: int | None


def resolved(asked: AskedLayout, *, model: Model, engine: Engine, node: Node) -> Layout:
    """The layout to plan for: what was asked, completed the way the engine is usually run."""
    for name in ("nodes", "tp", "pp", "dp", "ep", "dcp"):
        size = getattr(asked, name)
        if size is not None and not 1 <= size <= MOST_RANKS:
            raise UsageError(
                f"--{name} {size} is not between 1 and {MOST_RANKS}",
                where=f"--{name}",
                remedy="give a whole number in that range, such as 8",
            )
    num_gpus = asked.nodes * node.num_gpus
    tp, pp, dp = _main_sizes(asked, model=model, engine=engine, node=node, num_gpus=num_gpus)
    sized = Layout(
        nodes=asked.nodes,
        gpus_per_node=node.num_gpus,
        tp=tp,
        pp=pp,
        dp=dp,
        ep=1,
        dcp=asked.dcp or 1,
        data_parallel=engine.layout.data_parallel,
        stage_split=engine.layout.stage_split,
    )
    return replace(sized, ep=asked.ep or _usual_ep(sized, engine, model))


def _main_sizes(
    asked: AskedLayout, *, model: Model, engine: Engine, node: Node, num_gpus: int
) -> tuple[int, int, int]:
    if asked.tp is not None:
        pp = asked.pp
        if pp is None:
            spare = num_gpus // (asked.tp * (asked.dp or 1))
            across = asked.nodes > 1 and engine.layout.pipeline and asked.dp is None
            pp = max(1, spare) if across else 1
        return asked.tp, pp, asked.dp or 1
    if engine.layout.multi_node == ONE_PROCESS:
        return 1, asked.pp or min(num_gpus, model.num_layers), asked.dp or 1
    pp, dp = asked.pp or 1, asked.dp or 1
    beyond_fabric = num_gpus > max(node.num_gpus, node.scale_up_domain_gpus)
    if asked.pp is None and asked.dp is None and beyond_fabric:
        pp = asked.nodes if engine.layout.multi_node == "pipeline" else 1
    groups = dp if engine.layout.data_parallel is DataParallel.GROUPS else 1
    tp = max(1, num_gpus // (pp * groups))
    if asked.dp is None and _too_wide(tp, model):
        narrow = max(d for d in (8, 4, 2, 1) if tp % d == 0)
        dp = tp // narrow
        tp = narrow if engine.layout.data_parallel is DataParallel.GROUPS else tp
    return tp, pp, dp


def _too_wide(tp: int, model: Model) -> bool:
    heads = {model.latent.num_heads} | ({model.linear.num_heads} if model.linear else set())
    return tp > WIDEST_USUAL_TP or any(count % tp for count in heads)


def _usual_ep(layout: Layout, engine: Engine, model: Model) -> int:
    if model.experts is None:
        return 1
    if engine.layout.expert_parallel is ExpertParallel.TENSOR:
        return layout.tp
    spread = layout.expert_world
    if layout.dp > 1 and engine.layout.expert_parallel is not ExpertParallel.NONE:
        return spread
    return 1


def check_draft(draft: Draft, engine: Engine) -> None:
    """Refuse a draft that was made for other engines."""
    if engine.engine not in draft.engines:
        raise RefusedError(
            f"{draft.name} is a draft for {', '.join(draft.engines)}, not for {engine.name}",
            where=f"--draft {draft.id}",
            remedy="choose a draft of this engine; `k31ctl profiles list drafts` shows them",
            rule="draft-engine",
            source=draft.source,
        )


def check_support(*, model: Model, engine: Engine, node: Node) -> None:
    """Refuse a model that the release cannot read, or a GPU that it does not run on."""
    where = f"{model.id}, engine {engine.engine}@{engine.version}"
    if model.architecture not in engine.architectures:
        raise RefusedError(
            f"{engine.name} cannot read {model.architecture}",
            where=where,
            rule="engine-architecture",
            source=engine.source,
            remedy=f"it reads {', '.join(engine.architectures)}; `k31ctl profiles list engines` "
            "shows the others",
        )
    gpu = node.gpu
    if gpu.vendor not in engine.vendors or (
        engine.gpu_architectures and gpu.architecture not in engine.gpu_architectures
    ):
        raise RefusedError(
            f"{engine.name} does not run on {gpu.name} ({gpu.architecture})",
            where=where,
            rule="engine-gpu",
            source=engine.source,
            remedy="choose another --on or --engine",
        )
    sparse = any(isinstance(m, SparseLatentAttention) for m in model.mixers)
    if sparse and gpu.architecture in engine.sparse_excluded_gpus:
        raise RefusedError(
            f"{engine.name} has no sparse-attention kernel for {gpu.name} ({gpu.architecture})",
            where=where,
            rule="engine-sparse-gpu",
            source=engine.source,
            remedy="choose a data-centre GPU with --on, such as 8x-b300",
        )
