"""Rules of vLLM about batches, lengths, graphs and memory."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_MANY_TOKENS: Final = 8192
_LARGE_GPU_GIB: Final = 160
_MOST_FRACTION: Final = 0.975
_LONG_CONTEXT: Final = 1_000_000


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


def _length(context: LaunchContext) -> Iterable[Hit]:
    model, length = context.model, context.number("--max-model-len", 0)
    if model is None or length <= model.max_position_embeddings:
        return NOTHING
    if context.variable("VLLM_ALLOW_LONG_MAX_MODEL_LEN") == "1":
        return NOTHING
    limit = model.max_position_embeddings
    message = f"--max-model-len {length:.0f} is beyond the {limit:,} tokens of {model.name}"
    return hit(context, message, "--max-model-len", remedy=f"write --max-model-len {limit}")


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
    return hit(
        context,
        message,
        "--max-num-batched-tokens",
        remedy=f"write --max-num-batched-tokens {most}, or less",
    )


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


VLLM_MEMORY_RULES: Final = (
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
        id="vllm-length",
        severity=Severity.ERROR,
        about="--max-model-len is beyond the model's own limit",
        remedy="lower --max-model-len",
        source="vLLM 0.33.0 config/model.py",
        check=_length,
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
