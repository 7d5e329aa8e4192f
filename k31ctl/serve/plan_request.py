"""What the plan has to know of a launch: the settings of its recipe, read as a request."""

from collections.abc import Mapping
from typing import Final

from k31ctl.core.costing import NO_WISHES
from k31ctl.core.kv_cache import IndexFormat, KvFormat, StateDtype
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.request import PlanRequest
from k31ctl.core.rules.context import FRACTION_FLAGS
from k31ctl.core.workload import NO_LOAD

CHUNK_FLAGS: Final = ("--max-num-batched-tokens", "--chunked-prefill-size")
LENGTH_FLAGS: Final = ("--max-model-len", "--context-length")
_STATE_FLAGS: Final = ("--mamba-ssm-dtype", "--mamba-ssm-cache-dtype")
_NO_PREFIXES: Final = {
    "--enable-prefix-caching": False,
    "--disable-radix-cache": True,
    "--disable-prefix-caching": False,
}
_REPLAY: Final = ("--enable-linear-replayssm-spec", "--use-replayssm")
_LAZY_SLOTS: Final = 4
_KV_FORMATS: Final = {
    "fp8": KvFormat.FP8,
    "fp8_e4m3": KvFormat.FP8,
    "fp8_ds_mla": KvFormat.FP8_DS_MLA,
    "nvfp4_ds_mla": KvFormat.NVFP4_DS_MLA,
    "bfloat16": KvFormat.BF16,
    "bf16": KvFormat.BF16,
}


def first_number(flags: Mapping[str, object], names: tuple[str, ...]) -> float | None:
    """The value of the first of these flags that is set to a number."""
    for name in names:
        value = flags.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
    return None


def plan_request(
    flags: Mapping[str, object],
    *,
    layout: AskedLayout,
    context_tokens: int,
    max_model_len: int | None,
    draft_tokens: int | None,
) -> PlanRequest:
    """Return the request that describes these settings to the memory model."""
    chunk = first_number(flags, CHUNK_FLAGS)
    state = first_text(flags, _STATE_FLAGS)
    pool = first_number(flags, ("--kv-cache-memory-bytes",))
    lazy = flags.get("--mamba-radix-cache-strategy") == "extra_buffer_lazy"
    return PlanRequest(
        contexts=(context_tokens,),
        batches=(1,),
        layout=layout,
        kv_dtype=_KV_FORMATS.get(first_text(flags, ("--kv-cache-dtype",))),
        index_dtype=_index_format(flags),
        state_dtype=StateDtype.BF16 if state == "bfloat16" else StateDtype.FP32,
        kv_memory_bytes=int(pool) if pool else None,
        max_model_len=max_model_len,
        prefix_caching=not any(flags.get(name) is off for name, off in _NO_PREFIXES.items()),
        draft_tokens=draft_tokens,
        replay_ssm=any(flags.get(name) is True for name in _REPLAY),
        state_slots=_LAZY_SLOTS if lazy else None,
        chunk_tokens=int(chunk) if chunk else None,
        memory_fraction=first_number(flags, FRACTION_FLAGS),
        state_ratio=first_number(flags, ("--mamba-full-memory-ratio",)),
        text_only=flags.get("--language-model-only") is True,
        image=None,
        lora_rank=None,
        offload=None,
        resident_experts=None,
        workload=NO_LOAD,
        cost=NO_WISHES,
        simulation=None,
    )


def _index_format(flags: Mapping[str, object]) -> IndexFormat | None:
    """The type of index keys where it is set to one that is counted."""
    config = flags.get("--attention-config")
    word = config.get("indexer_kv_dtype") if isinstance(config, Mapping) else None
    return IndexFormat(word) if word in list(IndexFormat) else None


def first_text(flags: Mapping[str, object], names: tuple[str, ...]) -> str:
    """The value of the first of these flags that is set to text, else nothing."""
    return next((v for name in names if isinstance(v := flags.get(name), str)), "")
