"""What a model, a cache type or a GPU asks of the settings beyond what a recipe says."""

from typing import Final

from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.rules.context import BLACKWELL
from k31ctl.serve.gather import Gathered
from k31ctl.serve.ledger import Ledger
from k31ctl.serve.reasons import flag_reason
from k31ctl.serve.rollout import Standing

_PARSERS: Final = {
    "KimiK3ForConditionalGeneration": "kimi_k3",
    "KimiK31ForConditionalGeneration": "kimi_k3",
    "KimiK25ForConditionalGeneration": "kimi_k2",
}
_KIMI_K2: Final = "kimi-k2"
_ATTENTION: Final = "--attention-config"
_BACKEND: Final = "--attention-backend"
_KV: Final = "--kv-cache-dtype"
_QUERY: Final = "use_prefill_query_quantization"
_KV_WORDS: Final = {
    "vllm": {KvFormat.BF16: "bfloat16"},
    "sglang": {KvFormat.BF16: "bf16", KvFormat.FP8: "fp8_e4m3", KvFormat.FP8_DS_MLA: "fp8_e4m3"},
    "tokenspeed": {KvFormat.BF16: "bfloat16"},
}
_TOKENSPEED_ALWAYS: Final[dict[str, object]] = {
    _KV: "fp8",
    "--mm-encoder-tp-mode": "data",
    "--disable-kvstore": True,
}
_TOKENSPEED_SOURCE: Final = "lightseekorg/tokenspeed docs/recipes/models.md"


def basic_settings(ledger: Ledger, gathered: Gathered) -> None:
    """Put what every launch of the model needs; a recipe's own words come later and win."""
    source = gathered.parser
    engine, model = gathered.engine.engine, gathered.model

    def put(flag: str, value: object) -> None:
        ledger.put(flag, value, flag_reason(flag), source=source, standing=Standing.DERIVED)

    put("--trust-remote-code", True)
    parser = _PARSERS.get(model.architecture)
    if parser is None and model.id.startswith(_KIMI_K2):
        parser = "kimi_k2"
    if parser is not None and engine != "tokenspeed":
        put("--tool-call-parser", parser)
        put("--reasoning-parser", parser)
        if engine == "vllm":
            put("--enable-auto-tool-choice", True)
    if engine == "tokenspeed" and model.architecture.startswith("KimiK3"):
        for flag, value in _TOKENSPEED_ALWAYS.items():
            ledger.put(
                flag,
                value,
                flag_reason(flag),
                source=_TOKENSPEED_SOURCE,
                standing=Standing.PUBLISHED,
            )


def cache_settings(ledger: Ledger, gathered: Gathered, asked: KvFormat | None) -> None:
    """Put the cache type that was asked for, with what the engine wants beside it."""
    engine, gpu = gathered.engine.engine, gathered.node.gpu
    if asked is not None:
        word = _KV_WORDS[engine].get(asked, asked.value)
        ledger.put(_KV, word, "asked for", source="--kv-dtype", standing=Standing.ASKED)
    if engine != "vllm" or gathered.model.indexer is not None or gpu.vendor == "amd":
        return
    _query_type(ledger, gathered, fp8=ledger.values.get(_KV) == "fp8")


def _query_type(ledger: Ledger, gathered: Gathered, *, fp8: bool) -> None:
    """An fp8 cache of latents needs quantised prefill queries, and on Hopper FLASHMLA."""
    written = ledger.values.get(_ATTENTION)
    config = dict(written) if isinstance(written, dict) else {}
    source = gathered.engine.cache.source
    if fp8 and gathered.model.architecture.startswith("KimiK3") and not config.get(_QUERY):
        ledger.put(
            _ATTENTION,
            {**config, _QUERY: True},
            "an fp8 cache needs quantised prefill queries",
            source=source,
            standing=Standing.DERIVED,
        )
    elif not fp8 and config.pop(_QUERY, None) is not None:
        reason = "only an fp8 cache wants quantised prefill queries"
        if config:
            ledger.put(_ATTENTION, config, reason, source=source, standing=Standing.DERIVED)
        else:
            ledger.drop(_ATTENTION, reason)
    if fp8 and gathered.node.gpu.architecture == "sm_90":
        ledger.put(
            _BACKEND,
            "FLASHMLA",
            "the kernel for an fp8 cache on this GPU",
            source=source,
            standing=Standing.DERIVED,
        )


def overlay_names(engine: str, gpu: str, *, dcp: int, text_only: bool) -> tuple[str, ...]:
    """The published additions that a layout or an option calls for."""
    found = []
    if engine == "vllm" and dcp > 1 and gpu in BLACKWELL:
        found.append("vllm-overlay-dcp8")
    if engine == "vllm" and text_only:
        found.append("vllm-overlay-text-only")
    return tuple(found)
