"""Rules of SGLang about the cache and the states of linear layers."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import BLACKWELL, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, drop, hit

_ALGORITHM: Final = "--speculative-algorithm"
_STRATEGY: Final = "--mamba-radix-cache-strategy"
_ATTENTION_FLAGS: Final = (
    "--attention-backend",
    "--decode-attention-backend",
    "--prefill-attention-backend",
)
_TRTLLM: Final = ("trtllm_mla", "cutedsl_mla")
_OTHER_THAN_TRITON: Final = (
    "cutedsl",
    "flashinfer",
    "flashkda",
    "helion",
    "nvidia_kda",
    "ptx_kda",
)
_PAGES_OF_64: Final = ("flashmla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla")
_GRAPH_BATCH_LIMIT: Final = 512


def _attention(context: LaunchContext) -> str:
    return context.text("--decode-attention-backend") or context.text("--attention-backend")


def _lazy_buffers(context: LaunchContext) -> Iterable[Hit]:
    flag, strategy = _STRATEGY, context.text(_STRATEGY)
    if strategy == "extra_buffer_lazy" and context.role:
        message = "extra_buffer_lazy is refused on a disaggregated server"
        return hit(context, message, flag, "--disaggregation-mode")
    if strategy == "extra_buffer_lazy" and context.value("--disable-overlap-schedule"):
        message = "extra_buffer_lazy needs the overlap schedule"
        return hit(context, message, flag, "--disable-overlap-schedule")
    linear = context.text("--linear-attn-backend")
    if strategy.startswith("extra_buffer") and linear not in ("", "triton"):
        return hit(context, f"{strategy} needs the triton backend", flag, "--linear-attn-backend")
    return NOTHING


def _track_interval(context: LaunchContext) -> Iterable[Hit]:
    flag, interval = "--mamba-track-interval", int(context.number("--mamba-track-interval", 0))
    if not interval or not context.text(_STRATEGY).startswith("extra_buffer"):
        return NOTHING
    page = _page_tokens(context)
    if page and interval % page:
        message = f"{flag} {interval} is no multiple of the page of {page} tokens (--page-size)"
        remedy = f"write {flag} {page * max(1, round(interval / page))}"
        return hit(context, message, flag, "--page-size", remedy=remedy)
    tokens = int(context.number("--speculative-num-draft-tokens", 0))
    if interval < tokens:
        message = f"{flag} {interval} is below the {tokens} draft tokens of a step"
        return hit(context, message, flag, "--speculative-num-draft-tokens")
    return NOTHING


def _page_tokens(context: LaunchContext) -> int:
    """Tokens of a page, as given or as the attention backend makes it; 0 where not known."""
    if context.has("--page-size"):
        return int(context.number("--page-size", 0))
    chosen = [context.text(flag) for flag in _ATTENTION_FLAGS if context.has(flag)]
    if any(backend in _PAGES_OF_64 for backend in chosen):
        return 64
    return 64 if context.gpu in BLACKWELL and not chosen and not context.open_ended else 0


def _no_buffers(context: LaunchContext) -> Iterable[Hit]:
    flag = _STRATEGY
    if context.text(flag) != "no_buffer":
        return NOTHING
    if context.number("--page-size", 0) > 1:
        return hit(context, "no_buffer needs pages of one token", flag, "--page-size")
    if not context.value("--disable-overlap-schedule"):
        message = "no_buffer needs --disable-overlap-schedule"
        change = Change(add=("--disable-overlap-schedule",))
        return hit(context, message, flag, change=change)
    if _attention(context) in _TRTLLM:
        message = f"no_buffer does not go with {_attention(context)}"
        return hit(context, message, flag, "--attention-backend", "--decode-attention-backend")
    return NOTHING


def _linear_backend(context: LaunchContext) -> Iterable[Hit]:
    flags = ("--linear-attn-decode-backend", "--linear-attn-backend")
    flag = next((flag for flag in flags if context.has(flag)), "")
    backend = context.text(flag)
    if not context.is_k3 or backend not in _OTHER_THAN_TRITON:
        return NOTHING
    message = f"{flag} {backend} refuses the bounded gate of Kimi K3's linear attention"
    remedy = f"leave {flag} out, or write {flag} triton"
    return hit(context, message, flag, remedy=remedy, change=drop(context, flag))


def _rounding(context: LaunchContext) -> Iterable[Hit]:
    flag = "--enable-mamba-cache-stochastic-rounding"
    if not context.value(flag) or context.text("--mamba-ssm-dtype") == "float16":
        return NOTHING
    return hit(context, "stochastic rounding needs --mamba-ssm-dtype float16", flag)


def _hierarchical(context: LaunchContext) -> Iterable[Hit]:
    flag = "--enable-hierarchical-cache"
    if not context.value(flag):
        return NOTHING
    if context.value("--disable-radix-cache"):
        message = f"{flag} does not go with --disable-radix-cache"
        return hit(context, message, flag, "--disable-radix-cache")
    if context.size("dcp") > 1 and context.draft_method not in ("", "none", "dspark"):
        message = f"{flag} with decode-context parallelism speculates with DSPARK only"
        return hit(context, message, flag, _ALGORITHM)
    return NOTHING


def _lmcache(context: LaunchContext) -> Iterable[Hit]:
    if not context.value("--enable-lmcache"):
        return NOTHING
    broken = [
        (bool(context.draft_method), "speculation", _ALGORITHM),
        (context.dp > 1, "data parallelism", "--attn-dp-size"),
        (context.dp > 1, "", "--dp-size"),
        (context.size("dcp") > 1, "decode-context parallelism", "--dcp-size"),
        (bool(context.role), "disaggregation", "--disaggregation-mode"),
    ]
    found = [text for is_broken, text, _ in broken if is_broken and text]
    flags = [flag for is_broken, _, flag in broken if is_broken]
    if not found:
        return NOTHING
    return hit(context, f"LMCache does not go with {', '.join(found)}", "--enable-lmcache", *flags)


def _cache_rows(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or context.text("--kv-cache-dtype") not in ("nvfp4", "fp4_mx_block16"):
        return NOTHING
    dtype = context.text("--kv-cache-dtype")
    message = (
        f"--kv-cache-dtype {dtype}: a 4-bit cache goes with trtllm_mha only, which has no latent "
        "attention"
    )
    return hit(context, message, "--kv-cache-dtype")


def _flashmla_cache(context: LaunchContext) -> Iterable[Hit]:
    backend, dtype = _attention(context), context.text("--kv-cache-dtype")
    if not context.is_k3 or backend != "tokenspeed_mla" or dtype.startswith("fp8"):
        return NOTHING
    message = "tokenspeed_mla makes the cache fp8, whatever --kv-cache-dtype says"
    return hit(context, message, "--decode-attention-backend", "--attention-backend")


def _page(context: LaunchContext) -> Iterable[Hit]:
    page, backend = int(context.number("--page-size", 0)), _attention(context)
    if not page:
        return NOTHING
    if backend == "flashmla" and page != 64:  # noqa: PLR2004
        return hit(context, f"flashmla makes pages of 64 tokens, not of {page}", "--page-size")
    if backend in _TRTLLM and page not in (32, 64):
        message = f"{backend} takes pages of 32 or 64 tokens and makes {page} into 64"
        return hit(context, message, "--page-size")
    return NOTHING


def _graphs(context: LaunchContext) -> Iterable[Hit]:
    flag = "--cuda-graph-max-bs-decode"
    batch = context.number(flag, 0)
    if not context.is_k3 or batch <= _GRAPH_BATCH_LIMIT:
        return NOTHING
    message = f"decode graphs up to {batch:g} requests take tens of GB from the cache"
    return hit(context, message, flag)


def _long_chunks(context: LaunchContext) -> Iterable[Hit]:
    model = context.model
    if model is None or not context.node or context.gpu_gib > 160 or context.role:  # noqa: PLR2004
        return NOTHING
    length = context.number("--context-length", 0) or model.max_position_embeddings
    chunk = context.number("--chunked-prefill-size", 0)
    if length < 1_000_000 or chunk <= 8192:  # noqa: PLR2004
        return NOTHING
    message = f"chunks of {chunk:g} tokens ran out of memory in prompts of a million tokens"
    return hit(context, message, "--chunked-prefill-size")


def _length(context: LaunchContext) -> Iterable[Hit]:
    model, length = context.model, context.number("--context-length", 0)
    if model is None or length <= model.max_position_embeddings:
        return NOTHING
    if context.variable("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN") in ("1", "true", "True"):
        return NOTHING
    limit = model.max_position_embeddings
    message = f"--context-length {length:.0f} is beyond the {limit:,} tokens of {model.name}"
    return hit(context, message, "--context-length", remedy=f"write --context-length {limit}")


def _old_hierarchical(context: LaunchContext) -> Iterable[Hit]:
    flag = "--enable-hierarchical-cache"
    if not context.is_k3 or not context.value(flag):
        return NOTHING
    return hit(context, "the hierarchical cache crashed with Kimi K3", flag)


def _old_buffers(context: LaunchContext) -> Iterable[Hit]:
    flag = "--mamba-radix-cache-strategy"
    if not context.is_k3 or not context.text(flag).startswith("extra_buffer"):
        return NOTHING
    return hit(context, "cached states of KDA were read before they were written", flag)


SGLANG_STATE_RULES: Final = (
    Rule(
        id="sglang-extra-buffer",
        severity=Severity.ERROR,
        about="extra buffers of states stand beside what it refuses",
        remedy="take another --mamba-radix-cache-strategy",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_lazy_buffers,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-track-interval",
        severity=Severity.ERROR,
        about="states are kept at distances that pages or drafts do not allow",
        remedy="write a multiple of the page size that is above the draft tokens",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_track_interval,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-no-buffer",
        absence=True,
        severity=Severity.ERROR,
        about="states without buffers stand beside what it refuses",
        remedy="take another --mamba-radix-cache-strategy",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_no_buffers,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-linear-decode",
        severity=Severity.ERROR,
        about="the decode kernel of linear attention refuses the gate of Kimi K3",
        remedy="leave --linear-attn-decode-backend out",
        source="SGLang 0.5.23 srt/models/kimi_k3.py",
        check=_linear_backend,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-stochastic-rounding",
        severity=Severity.ERROR,
        about="stochastic rounding is on for a state that is not float16",
        remedy="leave --enable-mamba-cache-stochastic-rounding out",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_rounding,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-hierarchical-cache",
        severity=Severity.ERROR,
        about="the hierarchical cache stands beside what it refuses",
        remedy="leave one of them out",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_hierarchical,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-lmcache",
        severity=Severity.ERROR,
        about="LMCache stands beside what it refuses",
        remedy="leave --enable-lmcache out",
        source="SGLang 0.5.23 srt/server_args.py; vllm-project/vllm#50953",
        check=_lmcache,
        failures=(14,),
        engines=("sglang",),
    ),
    Rule(
        id="sglang-cache-row",
        severity=Severity.ERROR,
        about="the cache is 4-bit for latent attention",
        remedy="write --kv-cache-dtype fp8_e4m3",
        source="SGLang 0.5.23 srt/server_args.py; sgl-project/sglang#14691",
        check=_cache_rows,
        failures=(25,),
        engines=("sglang",),
    ),
    Rule(
        id="sglang-cache-made-fp8",
        severity=Severity.WARNING,
        about="the attention backend makes the cache fp8",
        remedy="write --kv-cache-dtype fp8_e4m3",
        source="SGLang 0.5.23 srt/server_args.py; sgl-project/sglang#14691",
        check=_flashmla_cache,
        failures=(25,),
        engines=("sglang",),
    ),
    Rule(
        id="sglang-page-size",
        severity=Severity.WARNING,
        about="the page size is one that the backend replaces",
        remedy="leave --page-size out",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_page,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-graph-memory",
        severity=Severity.WARNING,
        about="decode graphs are captured for very many requests",
        remedy="lower --cuda-graph-max-bs-decode to 256",
        source="sgl-project/sglang#24453",
        check=_graphs,
        failures=(23,),
        engines=("sglang",),
    ),
    Rule(
        id="sglang-long-chunks",
        severity=Severity.WARNING,
        about="chunks are large and prompts may be a million tokens",
        remedy="lower --chunked-prefill-size to 8192",
        source="MoonshotAI/Kimi-K3#26",
        check=_long_chunks,
        failures=(28,),
        engines=("sglang",),
    ),
    Rule(
        id="sglang-length",
        severity=Severity.ERROR,
        about="--context-length is beyond the model's own limit",
        remedy="lower --context-length",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_length,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-early-hierarchical",
        severity=Severity.WARNING,
        about="the hierarchical cache runs on an early build",
        remedy="use 0.5.23",
        source="sgl-project/sglang#36377",
        check=_old_hierarchical,
        failures=(19,),
        until="0.5.20",
        engines=("sglang",),
    ),
    Rule(
        id="sglang-early-buffers",
        severity=Severity.WARNING,
        about="states are cached in extra buffers on an early build",
        remedy="use 0.5.23",
        source="sgl-project/sglang pulls 30862 and 26580",
        check=_old_buffers,
        failures=(22,),
        until="0.5.17",
        engines=("sglang",),
    ),
)
