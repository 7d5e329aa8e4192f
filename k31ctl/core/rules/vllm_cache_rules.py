"""Rules of vLLM about the cache, attention backends and memory."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.rules.context import BLACKWELL, K3, LaunchContext
from k31ctl.core.rules.finding import Change, Severity
from k31ctl.core.rules.read_rules import merged_object
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_FP8: Final = ("fp8", "fp8_e4m3", "fp8_e5m2")
_FP8_BACKENDS: Final = (
    "flashinfer_mla",
    "tokenspeed_mla",
    "cutlass_mla",
    "flashmla",
    "triton_mla",
    "rocm_aiter_mla",
)
_BACKEND_GPUS: Final = {
    "flashinfer_mla": ("sm_100", "sm_103"),
    "tokenspeed_mla": ("sm_100", "sm_103"),
    "cutlass_mla": ("sm_100", "sm_103"),
    "flash_attn_mla": ("sm_90",),
    "flashmla": ("sm_90", "sm_100", "sm_103"),
    "rocm_aiter_mla": ("gfx950",),
}
_BLOCKS: Final = {
    "flashinfer_mla": (32, 64),
    "tokenspeed_mla": (32, 64),
    "cutlass_mla": (128,),
    "flashmla": (64,),
}
_MANY_TOKENS: Final = 8192
_LARGE_GPU_GIB: Final = 160
_MOST_FRACTION: Final = 0.975
_LONG_CONTEXT: Final = 1_000_000


def _backend(context: LaunchContext) -> str:
    given = context.fields("--attention-config").get("backend")
    return context.text("--attention-backend") or str(given or "").casefold()


def _fp8_query(context: LaunchContext) -> Iterable[Hit]:
    if context.architecture != K3 or context.text("--kv-cache-dtype") not in _FP8:
        return NOTHING
    if context.fields("--attention-config").get("use_prefill_query_quantization") is True:
        return NOTHING
    if context.is_amd:
        return NOTHING
    return hit(
        context,
        "an fp8 cache needs quantised prefill queries: without "
        "use_prefill_query_quantization the engine refuses to start",
        "--kv-cache-dtype",
        remedy="add --attention-config '{\"use_prefill_query_quantization\":true}'",
        change=merged_object(
            context, "--attention-config", {"use_prefill_query_quantization": True}
        ),
    )


def _fp8_backend(context: LaunchContext) -> Iterable[Hit]:
    backend, dtype = _backend(context), context.text("--kv-cache-dtype")
    if not context.is_k3 or dtype not in _FP8:
        return NOTHING
    if backend == "flash_attn_mla":
        message = "FLASH_ATTN_MLA has no fp8 cache"
        return hit(context, message, "--kv-cache-dtype", "--attention-backend")
    if not backend and context.gpu == "sm_90":
        return hit(
            context,
            "on Hopper the engine chooses FLASH_ATTN_MLA, which has no fp8 cache",
            "--kv-cache-dtype",
            change=Change(add=("--attention-backend", "FLASHMLA")),
        )
    return NOTHING


def _only_fp8(context: LaunchContext) -> Iterable[Hit]:
    if _backend(context) != "tokenspeed_mla" or context.text("--kv-cache-dtype") in _FP8:
        return NOTHING
    if not context.is_k3 or not context.has("--tensor-parallel-size"):
        return NOTHING
    message = "TOKENSPEED_MLA decodes from an fp8 cache only"
    return hit(context, message, "--attention-backend", "--kv-cache-dtype")


def _nvfp4(context: LaunchContext) -> Iterable[Hit]:
    dtype = context.text("--kv-cache-dtype")
    if dtype == "nvfp4" and context.is_k3:
        return hit(context, "latent attention has no plain nvfp4 cache", "--kv-cache-dtype")
    if dtype in ("fp8_ds_mla", "nvfp4_ds_mla") and context.architecture == K3:
        message = f"{dtype} is a row of sparse attention, which Kimi K3 does not have"
        return hit(context, message, "--kv-cache-dtype")
    return NOTHING


def _backend_gpu(context: LaunchContext) -> Iterable[Hit]:
    backend = _backend(context)
    gpus = _BACKEND_GPUS.get(backend, ())
    if not context.is_k3 or not gpus or not context.gpu or context.gpu in gpus:
        return NOTHING
    message = f"{backend.upper()} runs on {', '.join(gpus)}, not on {context.gpu}"
    return hit(context, message, "--attention-backend", "--attention-config")


def _block(context: LaunchContext) -> Iterable[Hit]:
    blocks, size = _BLOCKS.get(_backend(context), ()), int(context.number("--block-size", 0))
    if not blocks or not size or any(size % block == 0 for block in blocks):
        return NOTHING
    sizes = " or ".join(map(str, blocks))
    message = f"{_backend(context).upper()} takes multiples of {sizes}, not {size}"
    return hit(context, message, "--block-size")


def _batch_below_requests(context: LaunchContext) -> Iterable[Hit]:
    tokens = context.number("--max-num-batched-tokens", 0)
    requests = context.number("--max-num-seqs", 0)
    if not tokens or not requests or tokens >= requests:
        return NOTHING
    message = f"--max-num-batched-tokens {tokens:g} is below --max-num-seqs {requests:g}"
    return hit(context, message, "--max-num-batched-tokens", "--max-num-seqs")


def _no_chunks(context: LaunchContext) -> Iterable[Hit]:
    if context.value("--enable-chunked-prefill") is not False:
        return NOTHING
    if context.value("--enable-prefix-caching") and context.is_k3:
        message = "prefix caching of linear states needs chunked prefill"
        return hit(context, message, "--enable-chunked-prefill", "--enable-prefix-caching")
    tokens, length = context.number("--max-num-batched-tokens"), context.number("--max-model-len")
    if not tokens or not length or tokens >= length:
        return NOTHING
    message = "without chunked prefill --max-num-batched-tokens must reach --max-model-len"
    return hit(context, message, "--enable-chunked-prefill", "--max-num-batched-tokens")


def _no_image_chunks(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or context.value("--disable-chunked-mm-input") is not True:
        return NOTHING
    if not context.value("--enable-prefix-caching"):
        return NOTHING
    message = "prefix caching of linear states needs chunks of images too"
    return hit(context, message, "--disable-chunked-mm-input")


def _mamba_block(context: LaunchContext) -> Iterable[Hit]:
    if not context.has("--mamba-block-size") or context.value("--enable-prefix-caching"):
        return NOTHING
    return hit(context, "--mamba-block-size needs --enable-prefix-caching", "--mamba-block-size")


def _state_dtype(context: LaunchContext) -> Iterable[Hit]:
    flags = ("--mamba-ssm-cache-dtype", "--mamba-cache-dtype")
    used = [flag for flag in flags if context.text(flag) == "float16"]
    if not used or not context.is_k3:
        return NOTHING
    return hit(context, "KDA keeps its state in float32 or bfloat16, not in float16", *used)


def _length(context: LaunchContext) -> Iterable[Hit]:
    model, length = context.model, context.number("--max-model-len", 0)
    if model is None or length <= model.max_position_embeddings:
        return NOTHING
    if context.variable("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1":
        return NOTHING
    limit = model.max_position_embeddings
    message = f"--max-model-len {length:,.0f} is beyond the {limit:,} tokens of {model.name}"
    return hit(context, message, "--max-model-len", remedy=f"write --max-model-len {limit}")


def _kda_prefill(context: LaunchContext) -> Iterable[Hit]:
    backend, gpu = context.text("--kda-prefill-backend"), context.gpu
    if not gpu:
        return NOTHING
    if backend == "fused" and not context.is_amd:
        return hit(context, "the fused KDA prefill is for ROCm only", "--kda-prefill-backend")
    if backend == "flashinfer":
        if gpu not in BLACKWELL:
            message = f"FlashInfer's KDA prefill is for sm_100 and sm_103, not {gpu}"
            return hit(context, message, "--kda-prefill-backend")
        if context.text("--mamba-ssm-cache-dtype") != "bfloat16":
            return hit(
                context,
                "FlashInfer's KDA prefill wants a bfloat16 state",
                "--kda-prefill-backend",
                remedy="add --mamba-ssm-cache-dtype bfloat16, or take flashkda",
            )
    if backend == "flashkda" and context.is_amd:
        return hit(context, "flashkda is for CUDA only", "--kda-prefill-backend")
    return NOTHING


def _breakable_graphs(context: LaunchContext) -> Iterable[Hit]:
    name = "VLLM_USE_BREAKABLE_CUDAGRAPH"
    if not context.is_k3 or not context.is_amd or context.variable(name) == "0":
        return NOTHING
    if context.value("--enforce-eager"):
        return NOTHING
    return hit(
        context,
        f"breakable graphs fault on {context.gpu}",
        variable=name,
        change=Change(variables={name: "0"}),
    )


def _aiter_mla(context: LaunchContext) -> Iterable[Hit]:
    if context.gpu != "gfx950" or _backend(context) != "rocm_aiter_mla":
        return NOTHING
    message = "ROCM_AITER_MLA failed with HIP error 700 on MI355X"
    return hit(context, message, "--attention-backend")


def _day0_prefix(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or not context.value("--enable-prefix-caching"):
        return NOTHING
    message = "builds before 0.27.1 crash under load with prefix caching at TP8"
    return hit(context, message, "--enable-prefix-caching")


def _graphs_memory(context: LaunchContext) -> Iterable[Hit]:
    fraction = context.number("--gpu-memory-utilization", 0)
    if not context.is_k3 or not _MOST_FRACTION < fraction <= 1:
        return NOTHING
    if context.value("--enforce-eager"):
        return NOTHING
    message = f"{fraction:g} of the memory leaves nothing for graphs and workspaces outside"
    return hit(context, message, "--gpu-memory-utilization")


def _outside_pool(context: LaunchContext) -> Iterable[Hit]:
    fraction = context.number("--gpu-memory-utilization", 0)
    if not context.is_k3 or context.node is None or context.node.gpu.vendor != "nvidia":
        return NOTHING
    if context.gpu != "sm_100" or context.size("pp") == 1 or fraction <= 0.93:  # noqa: PLR2004
        return NOTHING
    message = (
        "the MXFP4 kernels take 1.6 GiB outside the pool at the first step, which at "
        f"{fraction:g} does not fit beside a pipeline stage of a B200"
    )
    return hit(context, message, "--gpu-memory-utilization")


def _long_chunks(context: LaunchContext) -> Iterable[Hit]:
    model, node = context.model, context.node
    if model is None or node is None:
        return NOTHING
    most = _MANY_TOKENS if context.gpu_gib <= _LARGE_GPU_GIB else 2 * _MANY_TOKENS
    length = context.number("--max-model-len", 0) or model.max_position_embeddings
    chunk = context.number("--max-num-batched-tokens", 0)
    if length < _LONG_CONTEXT or chunk <= most:
        return NOTHING
    message = f"chunks of {chunk:g} tokens ran out of memory in prompts of a million tokens"
    return hit(context, message, "--max-num-batched-tokens", remedy=f"write {most}, or less, there")


def _runai(context: LaunchContext) -> Iterable[Hit]:
    if not context.text("--load-format").startswith("runai"):
        return NOTHING
    limited = "memory_limit" in context.fields("--model-loader-extra-config")
    if limited or context.variable("RUNAI_STREAMER_MEMORY_LIMIT"):
        return NOTHING
    message = "the Run:ai streamer takes all host memory unless it is limited"
    return hit(
        context,
        message,
        "--load-format",
        change=Change(variables={"RUNAI_STREAMER_MEMORY_LIMIT": "34359738368"}),
    )


VLLM_CACHE_RULES: Final = (
    Rule(
        id="vllm-fp8-prefill-query",
        absence=True,
        severity=Severity.ERROR,
        about="the cache is fp8 and prefill queries are not quantised",
        remedy="set use_prefill_query_quantization in --attention-config",
        source="vLLM 0.33.0 models/kimi_k3/nvidia/mla.py",
        check=_fp8_query,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-fp8-backend",
        absence=True,
        severity=Severity.ERROR,
        about="the cache is fp8 and the attention backend has none",
        remedy="add --attention-backend FLASHMLA",
        source="vLLM 0.33.0 v1/attention/backends/mla",
        check=_fp8_backend,
        engines=("vllm",),
        failures=(25,),
    ),
    Rule(
        id="vllm-backend-wants-fp8",
        absence=True,
        severity=Severity.ERROR,
        about="the attention backend wants an fp8 cache",
        remedy="add --kv-cache-dtype fp8",
        source="vLLM 0.33.0 v1/attention/backends/mla",
        check=_only_fp8,
        engines=("vllm",),
        failures=(25,),
    ),
    Rule(
        id="vllm-cache-row",
        severity=Severity.ERROR,
        about="the cache row is not one of this attention",
        remedy="write --kv-cache-dtype fp8 or leave it out",
        source="vLLM 0.33.0 v1/attention/backends/mla",
        check=_nvfp4,
        engines=("vllm",),
        failures=(25,),
    ),
    Rule(
        id="vllm-backend-gpu",
        severity=Severity.ERROR,
        about="the attention backend does not run on these GPUs",
        remedy="leave --attention-backend out",
        source="vLLM 0.33.0 v1/attention/backends/mla",
        check=_backend_gpu,
        engines=("vllm",),
        failures=(25,),
    ),
    Rule(
        id="vllm-backend-block",
        severity=Severity.ERROR,
        about="the block size is not one of the attention backend",
        remedy="leave --block-size out",
        source="vLLM 0.33.0 v1/attention/backends/mla",
        check=_block,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-batch-below-requests",
        severity=Severity.ERROR,
        about="a step takes fewer tokens than there may be requests",
        remedy="raise --max-num-batched-tokens or lower --max-num-seqs",
        source="vLLM 0.33.0 config/scheduler.py",
        check=_batch_below_requests,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-no-chunks",
        severity=Severity.ERROR,
        about="chunked prefill is off beside what needs it",
        remedy="leave --disable-chunked-prefill out",
        source="vLLM 0.33.0 config/scheduler.py",
        check=_no_chunks,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-no-image-chunks",
        severity=Severity.ERROR,
        about="chunks of images are off beside prefix caching of states",
        remedy="leave --disable-chunked-mm-input out",
        source="vLLM 0.33.0 model_executor/models/config.py",
        check=_no_image_chunks,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-mamba-block",
        absence=True,
        severity=Severity.ERROR,
        about="a block size of states is set without prefix caching",
        remedy="leave --mamba-block-size out",
        source="vLLM 0.33.0 config/cache.py",
        check=_mamba_block,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-state-dtype",
        severity=Severity.ERROR,
        about="the recurrent state is float16",
        remedy="write bfloat16 or leave it out",
        source="vLLM 0.33.0 model_executor/layers/mamba",
        check=_state_dtype,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-length",
        severity=Severity.ERROR,
        about="--max-model-len is beyond the model's own limit",
        remedy="lower --max-model-len",
        source="vLLM 0.33.0 config/model.py",
        check=_length,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-kda-prefill",
        severity=Severity.ERROR,
        about="the KDA prefill backend does not run here",
        remedy="leave --kda-prefill-backend out",
        source="vLLM 0.33.0 models/kimi_k3",
        check=_kda_prefill,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-breakable-graphs",
        unset=True,
        severity=Severity.ERROR,
        about="breakable graphs are on with ROCm",
        remedy="set VLLM_USE_BREAKABLE_CUDAGRAPH=0",
        source="vllm-project/vllm#57227",
        check=_breakable_graphs,
        engines=("vllm",),
        failures=(10,),
    ),
    Rule(
        id="vllm-rocm-aiter-mla",
        severity=Severity.WARNING,
        about="ROCM_AITER_MLA decodes on MI355X",
        remedy="leave --attention-backend out, or use a newer ROCm image",
        source="vllm-project/vllm#50347",
        check=_aiter_mla,
        engines=("vllm",),
        failures=(8,),
    ),
    Rule(
        id="vllm-day0-prefix-caching",
        severity=Severity.WARNING,
        about="prefix caching runs on a build before 0.27.1",
        remedy="use 0.27.1 or newer",
        source="vllm-project/vllm#50147",
        check=_day0_prefix,
        engines=("vllm",),
        failures=(5,),
        until="0.27.1",
    ),
    Rule(
        id="vllm-memory-fraction",
        severity=Severity.WARNING,
        about="nearly all memory is given to the pool",
        remedy="lower --gpu-memory-utilization to 0.95",
        source="vllm-project/vllm#39788",
        check=_graphs_memory,
        engines=("vllm",),
        failures=(39,),
    ),
    Rule(
        id="vllm-memory-outside-pool",
        severity=Severity.WARNING,
        about="a pipeline stage on a B200 leaves no room outside the pool",
        remedy="lower --gpu-memory-utilization to 0.90",
        source="vllm-project/recipes Kimi-K3.yaml",
        check=_outside_pool,
        engines=("vllm",),
        failures=(39,),
    ),
    Rule(
        id="vllm-long-chunks",
        severity=Severity.WARNING,
        about="chunks are large and prompts may be a million tokens",
        remedy="lower --max-num-batched-tokens to 8192",
        source="MoonshotAI/Kimi-K3#26",
        check=_long_chunks,
        engines=("vllm",),
        failures=(28,),
    ),
    Rule(
        id="runai-without-limit",
        unset=True,
        absence=True,
        severity=Severity.WARNING,
        about="the Run:ai streamer has no memory limit",
        remedy="set RUNAI_STREAMER_MEMORY_LIMIT=34359738368",
        source="AI-Hypercomputer/gpu-recipes pull 271",
        check=_runai,
        engines=("vllm", "sglang"),
        failures=(31,),
    ),
)
