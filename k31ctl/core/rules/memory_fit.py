"""Whether a launch fits into the memory of its GPUs, asked of the planner."""

from typing import Final

from k31ctl.core.costing import NO_WISHES
from k31ctl.core.deployment import Deployment, deployment
from k31ctl.core.draft import Draft
from k31ctl.core.engine import DataParallel
from k31ctl.core.kv_cache import KvFormat, StateDtype
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.memory import StageMemory
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.core.rules.context import FRACTION_FLAGS, LaunchContext
from k31ctl.core.rules.open_values import known_or
from k31ctl.core.tallies import once_per_object
from k31ctl.core.workload import NO_LOAD
from k31ctl.errors import K31Error
from k31ctl.values import frozen

_SURE: Final = 0.97  # kernels pad some experts, by how much is derived
_SURE_UNDER_DATA_PARALLEL: Final = 0.8
_FP8: Final = ("fp8", "fp8_e4m3", "fp8_e5m2", "mxfp8")
_OVERRIDES: Final = ("--hf-overrides", "--json-model-override-args")
_SIZES: Final = (
    "num_hidden_layers",
    "num_experts",
    "n_routed_experts",
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "vocab_size",
    "kv_lora_rank",
    "max_position_embeddings",
)
_ROWS: Final = {"fp8_ds_mla": KvFormat.FP8_DS_MLA, "nvfp4_ds_mla": KvFormat.NVFP4_DS_MLA}


@frozen
class Fit:
    """What the planner says: the deployment, or why there is none.

    Buffers and graphs are assumed and may be smaller than the planner takes them, so only what
    the weights alone leave is held against a launch. Under data parallelism what is repeated on
    each rank is derived, not counted, and is given some room.
    """

    built: Deployment | None
    refusal: K31Error | None
    max_model_len: int
    fraction: float

    @property
    def tightest(self) -> StageMemory | None:
        """The stage whose weights leave least."""
        if self.built is None:
            return None
        return max(self.built.stages, key=weights_bytes)

    @property
    def certain_weights_bytes(self) -> float:
        """Weights of the fullest GPU that are there for certain."""
        if self.built is None or self.tightest is None:
            return 0
        sure = _SURE_UNDER_DATA_PARALLEL if self.built.layout.dp > 1 else _SURE
        return weights_bytes(self.tightest) * sure

    @property
    def room_bytes(self) -> float:
        """The most that the engine can have left beside the weights of the fullest GPU."""
        assert self.tightest is not None
        return self.tightest.capacity_bytes * self.fraction - self.certain_weights_bytes

    @property
    def loads(self) -> bool:
        """Whether the weights alone leave room."""
        return self.built is not None and self.room_bytes > 0

    @property
    def holds_longest(self) -> bool:
        """Whether one request of the longest length can have room beside the weights."""
        if self.built is None:
            return False
        if self.built.pool.max_requests(self.max_model_len) >= 1:
            return True
        return self.longest_bytes <= self.room_bytes

    @property
    def longest_bytes(self) -> float:
        """What one request of the longest length caches on the fullest GPU."""
        assert self.built is not None
        return max(
            cache.bytes_per_token * self.max_model_len + cache.state_bytes_per_sequence
            for cache in self.built.caches
        )


def weights_bytes(stage: StageMemory) -> int:
    """Weights of the model and of its draft on one GPU of a stage."""
    return stage.line_bytes("weights_bytes")


@once_per_object
def fit(context: LaunchContext) -> Fit | None:
    """Return what the planner says of the launch, None where something that it needs is unknown.

    What is only known at run time is taken at its best: the shortest context, all of the memory.
    Raises OpenValueError where that is a size of the layout.
    """
    model, node, engine, speed = context.model, context.node, context.engine, context.speed
    if model is None or node is None or engine is None or speed is None or is_resized(context):
        return None
    length = _length(context, model.max_position_embeddings)
    parts = Parts(
        model=model, node=node, engine=engine, draft=_draft(context), speed=speed, prices=None
    )
    request = _request(context, parts, length)
    fraction = request.memory_fraction or engine.memory.fraction.value
    try:
        built = deployment(parts, request)
    except K31Error as error:
        return Fit(built=None, refusal=error, max_model_len=length, fraction=fraction)
    return Fit(built=built, refusal=None, max_model_len=length, fraction=fraction)


def is_resized(context: LaunchContext) -> bool:
    """Whether the launch loads the model with other sizes than its own, or may."""
    given = [flag for flag in _OVERRIDES if context.has(flag)]
    if any(map(context.is_open, given)):
        return True
    words = " ".join(str(context.value(flag)) for flag in given)
    return any(name in words for name in _SIZES)


def _length(context: LaunchContext, limit: int) -> int:
    """The longest request, in tokens, that the launch is certain to take."""
    if any(map(context.is_open, ("--max-model-len", "--context-length", "--kv-cache-dtype"))):
        return 1
    asked = context.number("--max-model-len", 0) or context.number("--context-length", 0) or limit
    return max(1, min(int(asked), limit))


def _method(context: LaunchContext) -> str:
    return known_or(lambda: context.draft_method, "")


def _draft(context: LaunchContext) -> Draft | None:
    return context.draft if _method(context) else None


def _request(context: LaunchContext, parts: Parts, length: int) -> PlanRequest:
    groups = parts.engine.layout.data_parallel is DataParallel.GROUPS
    dp = context.dp if groups or context.name != "sglang" else context.attention_dp
    return PlanRequest(
        contexts=(length,),
        batches=(1,),
        layout=AskedLayout(
            nodes=max(1, context.nodes),
            tp=context.size("tp"),
            pp=context.size("pp"),
            dp=dp,
            ep=context.ep,
            dcp=context.size("dcp"),
        ),
        kv_dtype=kv_format(context),
        index_dtype=None,
        state_dtype=state_dtype(context),
        kv_memory_bytes=int(_number(context, "--kv-cache-memory-bytes")) or None,
        max_model_len=length,
        prefix_caching=prefix_caching(context),
        draft_tokens=_draft_tokens(context),
        replay_ssm=bool(
            context.value("--use-replayssm") or context.value("--enable-linear-replayssm-spec")
        ),
        state_slots=None,
        chunk_tokens=_chunk_tokens(context),
        memory_fraction=_fraction(context),
        state_ratio=_number(context, "--mamba-full-memory-ratio") or None,
        text_only=bool(context.value("--language-model-only")),
        image=None,
        lora_rank=None,
        offload=None,
        resident_experts=None,
        workload=NO_LOAD,
        cost=NO_WISHES,
        simulation=None,
    )


def kv_format(context: LaunchContext) -> KvFormat | None:
    """The row that the launch caches, None where that is left to the engine."""
    text = known_or(lambda: context.text("--kv-cache-dtype"), "")
    if text in _ROWS:
        return _ROWS[text]
    if text in _FP8:
        return KvFormat.FP8
    return None if text in ("", "auto") else KvFormat.BF16


def state_dtype(context: LaunchContext) -> StateDtype:
    """The type of the recurrent state, fp32 where the launch does not say."""
    flags = ("--mamba-ssm-cache-dtype", "--mamba-ssm-dtype")
    text = known_or(lambda: context.text(flags[0]) or context.text(flags[1]), "")
    return StateDtype.BF16 if text == "bfloat16" else StateDtype.FP32


def prefix_caching(context: LaunchContext) -> bool:
    """Whether states are kept for prefixes that return."""
    if context.name == "sglang":
        return not context.value("--disable-radix-cache")
    return bool(context.value("--enable-prefix-caching", context.name == "tokenspeed"))


def _draft_tokens(context: LaunchContext) -> int | None:
    if not _method(context):
        return 0
    fields = context.fields("--speculative-config")
    number = known_or(lambda: fields.get("num_speculative_tokens"), None)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    flags = ("--spec-tokens", "--speculative-dspark-block-size")
    return int(_first_number(context, *flags)) or None


def _chunk_tokens(context: LaunchContext) -> int | None:
    given = int(_first_number(context, "--max-num-batched-tokens", "--chunked-prefill-size"))
    return given if given > 0 else None


def _number(context: LaunchContext, flag: str) -> float:
    """The flag's value, 0 where it is not set or not known."""
    return known_or(lambda: context.number(flag, 0), 0.0)


def _first_number(context: LaunchContext, *flags: str) -> float:
    return next((number for flag in flags if (number := _number(context, flag))), 0)


def _fraction(context: LaunchContext) -> float | None:
    if any(map(context.is_open, FRACTION_FLAGS)):
        return 1.0
    given = _first_number(context, *FRACTION_FLAGS)
    return given if 0 < given <= 1 else None
