"""What a plan settles, as flags of the engine that is started; the rest is told."""

from typing import Any, Final

from k31ctl.core.kv_cache import StateDtype
from k31ctl.core.plan import Plan
from k31ctl.core.planned import PlannedSettings
from k31ctl.serve.asked import Asked
from k31ctl.serve.ledger import Ledger
from k31ctl.serve.reasons import flag_reason
from k31ctl.serve.rollout import Server, Standing

SOURCE: Final = "--plan"
_FLAGS: Final[dict[str, dict[str, str]]] = {
    "vllm": {
        "kv_memory_bytes": "--kv-cache-memory-bytes",
        "memory_fraction": "--gpu-memory-utilization",
        "chunk_tokens": "--max-num-batched-tokens",
        "state_dtype": "--mamba-ssm-cache-dtype",
        "replay_ssm": "--use-replayssm",
    },
    "sglang": {
        "memory_fraction": "--mem-fraction-static",
        "chunk_tokens": "--chunked-prefill-size",
        "state_dtype": "--mamba-ssm-dtype",
        "state_ratio": "--mamba-full-memory-ratio",
        "replay_ssm": "--enable-linear-replayssm-spec",
    },
    "tokenspeed": {
        "memory_fraction": "--gpu-memory-utilization",
        "chunk_tokens": "--chunked-prefill-size",
        "state_dtype": "--mamba-ssm-dtype",
    },
    "tensorrt-llm": {},
}
_OPTIONS: Final = {
    "kv_memory_bytes": "--kv-memory",
    "memory_fraction": "--memory-fraction",
    "chunk_tokens": "--chunk-tokens",
    "state_dtype": "--state-dtype",
    "index_dtype": "--index-dtype",
    "state_ratio": "--state-ratio",
    "no_prefix_caching": "--no-prefix-caching",
    "replay_ssm": "--replay-ssm",
}
# How each parser is told to keep no prefixes: TokenSpeed's flag sets its own switch to no.
_NO_PREFIXES: Final = {
    "vllm": ("--enable-prefix-caching", False),
    "sglang": ("--disable-radix-cache", True),
    "tokenspeed": ("--disable-prefix-caching", False),
}
_CACHES: Final = ("--enable-prefix-caching", "--mamba-radix-cache-strategy")
_STATE_WORDS: Final = {StateDtype.BF16: "bfloat16", StateDtype.FP32: "float32"}


def put_planned(ledger: Ledger, engine: str, settings: PlannedSettings) -> None:
    """Put what the plan was asked for and the engine has a flag for."""
    for name, flag in _FLAGS[engine].items():
        value = getattr(settings, name)
        if value is None or value is False:
            continue
        word: Any = _STATE_WORDS[value] if isinstance(value, StateDtype) else value
        ledger.put(flag, word, flag_reason(flag), source=SOURCE, standing=Standing.ASKED)
    if settings.no_prefix_caching:
        reason = "the plan keeps no prefixes"
        for flag in _CACHES:
            ledger.drop(flag, reason)
        flag, word = _NO_PREFIXES[engine]
        ledger.put(flag, word, reason, source=SOURCE, standing=Standing.ASKED)


def passed_over(engine: str, settings: PlannedSettings, *, sparse: bool) -> tuple[str, ...]:
    """Every setting of the plan that the launch does not have, each in one sentence."""
    written = {*_FLAGS[engine]}
    if engine in _NO_PREFIXES:
        written.add("no_prefix_caching")
    if engine == "vllm" and sparse:
        written.add("index_dtype")
    missed = [
        option
        for name, option in _OPTIONS.items()
        if getattr(settings, name) not in (None, False) and name not in written
    ]
    return tuple(
        f"{option} of the plan is not taken: {why}"
        for options, why in (
            (missed, f"{engine} has no such flag"),
            (settings.unwritten, "serve writes nothing for it"),
        )
        for option in options
    )


def differences(asked: Asked, server: Server) -> tuple[str, ...]:
    """What the launch counts otherwise than the plan did, or holds less of, each in a sentence."""
    counted, plan = asked.counted, server.plan
    if counted is None:
        return ()
    tokens, rows = plan.capacity.kv_cache_tokens, plan.rows.kv_format
    if (tokens, rows) == (counted.kv_cache_tokens, counted.kv_format):
        return _batch(asked, plan)
    return (
        f"the plan counted {counted.kv_cache_tokens:,} tokens of cache in {counted.kv_format} "
        f"rows; as written there are {tokens:,} in {rows} rows, by what the plan left open",
        *_batch(asked, plan),
    )


def _batch(asked: Asked, plan: Plan) -> tuple[str, ...]:
    wanted, holds = asked.planned.batch, plan.cells[0].max_requests
    if wanted is None or wanted <= holds:
        return ()
    return (
        f"the plan asks for {wanted:,} requests at once; the cache holds {holds:,} of "
        f"{plan.cells[0].context_tokens:,} tokens",
    )
