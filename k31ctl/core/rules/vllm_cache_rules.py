"""Rules of vLLM about cache types, states and attention backends."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import BLACKWELL, K3, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.memory_fit import fit
from k31ctl.core.rules.read_rules import merged_object
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_FP8: Final = ("fp8", "fp8_e4m3", "fp8_e5m2")
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


def _small_block(context: LaunchContext) -> Iterable[Hit]:
    size = int(context.number("--block-size", 0))
    found = fit(context) if size > 0 else None
    if found is None or found.built is None:
        return NOTHING
    tokens = found.built.pool.capacity(found.max_model_len).block_tokens
    if size >= tokens:
        return NOTHING
    return hit(
        context,
        f"--block-size {size} is below the {tokens} tokens whose cache is as large as one state "
        "of a linear layer; the engine takes that many",
        "--block-size",
    )


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


def _aiter_mla(context: LaunchContext) -> Iterable[Hit]:
    if context.gpu != "gfx950" or _backend(context) != "rocm_aiter_mla":
        return NOTHING
    message = "ROCM_AITER_MLA failed with HIP error 700 on MI355X"
    return hit(context, message, "--attention-backend")


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
        id="vllm-block-raised",
        severity=Severity.WARNING,
        about="the block is smaller than one state of a linear layer",
        remedy="leave --block-size out",
        source="vLLM 0.33.0 platforms/interface.py",
        check=_small_block,
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
        id="vllm-kda-prefill",
        severity=Severity.ERROR,
        about="the KDA prefill backend does not run here",
        remedy="leave --kda-prefill-backend out",
        source="vLLM 0.33.0 models/kimi_k3",
        check=_kda_prefill,
        engines=("vllm",),
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
)
