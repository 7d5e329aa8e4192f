"""Rules of vLLM about experts, tools and images."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_NUM_EXPERTS: Final = 896
_MEGA: Final = ("deep_gemm_mega_moe", "aiter_mega_moe", "mega_moe")


def _mega_moe(context: LaunchContext) -> Iterable[Hit]:
    if context.text("--moe-backend") not in _MEGA:
        return NOTHING
    if not context.value("--enable-expert-parallel"):
        return hit(
            context,
            "MegaMoE needs --enable-expert-parallel",
            "--moe-backend",
            change=Change(add=("--enable-expert-parallel",)),
        )
    if context.is_k3 and _NUM_EXPERTS % context.ep:
        message = f"MegaMoE needs an expert parallelism that divides 896 experts, not {context.ep}"
        return hit(context, message, "--moe-backend", "--data-parallel-size")
    return NOTHING


def _eplb(context: LaunchContext) -> Iterable[Hit]:
    if not context.value("--enable-eplb") or context.value("--enable-expert-parallel"):
        return NOTHING
    return hit(context, "--enable-eplb needs --enable-expert-parallel", "--enable-eplb")


def _moonep(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or context.text("--all2all-backend") != "moonep":
        return NOTHING
    return hit(context, "moonep does not carry quantised experts", "--all2all-backend")


def _expert_parallel_hopper(context: LaunchContext) -> Iterable[Hit]:
    if context.gpu != "sm_90" or not context.value("--enable-expert-parallel"):
        return NOTHING
    if context.size("tp") > 1 or context.dp == 1:
        return NOTHING
    message = "data and expert parallelism without tensor parallelism is unsupported on Hopper"
    return hit(context, message, "--enable-expert-parallel", "--data-parallel-size")


def _prefill_context(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or context.number("--prefill-context-parallel-size", 1) <= 1:
        return NOTHING
    message = "this model refuses prefill-context parallelism above 1"
    return hit(context, message, "--prefill-context-parallel-size")


def _auto_choice(context: LaunchContext) -> Iterable[Hit]:
    parser = context.has("--tool-call-parser")
    auto = bool(context.value("--enable-auto-tool-choice"))
    if auto and not parser:
        return hit(
            context,
            "--enable-auto-tool-choice needs --tool-call-parser",
            "--enable-auto-tool-choice",
        )
    if parser and not auto and not context.wrapped:
        return hit(
            context,
            "without --enable-auto-tool-choice the engine refuses every request that lets the "
            "model choose a tool",
            "--tool-call-parser",
            remedy="add --enable-auto-tool-choice",
            change=Change(add=("--enable-auto-tool-choice",)),
        )
    return NOTHING


def _torch_shm(context: LaunchContext) -> Iterable[Hit]:
    if context.text("--mm-tensor-ipc") != "torch_shm" or context.ranks == 1:
        return NOTHING
    return hit(context, "torch_shm does not work with several GPUs", "--mm-tensor-ipc")


def _vision_ranks(context: LaunchContext) -> Iterable[Hit]:
    if context.text("--mm-encoder-tp-mode") != "weights" or not context.is_k3:
        return NOTHING
    if 12 % context.size("tp") == 0:  # heads of the vision tower
        return NOTHING
    message = f"TP {context.size('tp')} does not divide the 12 heads of the vision encoder"
    return hit(context, message, "--mm-encoder-tp-mode")


def _vl_async(context: LaunchContext) -> Iterable[Hit]:
    if not context.value("--language-model-only"):
        return NOTHING
    compiled = context.fields("--compilation-config")
    if not compiled.get("cudagraph_mm_encoder"):
        return NOTHING
    message = "--language-model-only does not go with graphs of the encoder"
    return hit(context, message, "--language-model-only", "--compilation-config")


VLLM_RULES: Final = (
    Rule(
        id="vllm-mega-moe",
        absence=True,
        severity=Severity.ERROR,
        about="MegaMoE is chosen where it does not run",
        remedy="add --enable-expert-parallel, or take another --moe-backend",
        source="vLLM 0.33.0 models/kimi_k3",
        check=_mega_moe,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-eplb",
        absence=True,
        severity=Severity.ERROR,
        about="expert load balancing runs without expert parallelism",
        remedy="add --enable-expert-parallel",
        source="vLLM 0.33.0 config/parallel.py",
        check=_eplb,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-moonep",
        severity=Severity.ERROR,
        about="moonep carries quantised experts",
        remedy="take another --all2all-backend",
        source="vLLM 0.33.0 model_executor/layers/fused_moe",
        check=_moonep,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-hopper-dep",
        severity=Severity.WARNING,
        about="data with expert parallelism runs on H100 or H200",
        remedy="use --tensor-parallel-size 8 or 16",
        source="vllm-project/recipes Kimi-K3.yaml",
        check=_expert_parallel_hopper,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-prefill-context",
        severity=Severity.ERROR,
        about="prefill-context parallelism is above 1",
        remedy="leave --prefill-context-parallel-size out",
        source="vLLM 0.33.0 models/kimi_k3",
        check=_prefill_context,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-auto-tool-choice",
        absence=True,
        severity=Severity.ERROR,
        about="--enable-auto-tool-choice and --tool-call-parser do not stand together",
        remedy="write both",
        source="vLLM 0.33.0 entrypoints/openai/cli_args.py",
        check=_auto_choice,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-torch-shm",
        severity=Severity.ERROR,
        about="tensors of images go through torch shared memory to several GPUs",
        remedy="leave --mm-tensor-ipc out",
        source="vLLM 0.33.0 config/multimodal.py",
        check=_torch_shm,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-vision-ranks",
        severity=Severity.ERROR,
        about="the vision encoder is cut into ranks that its heads do not divide into",
        remedy="write --mm-encoder-tp-mode data",
        source="config.json of moonshotai/Kimi-K3: vt_num_attention_heads",
        check=_vision_ranks,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-text-only-graphs",
        severity=Severity.ERROR,
        about="graphs of the encoder are captured for a text-only server",
        remedy="leave one of them out",
        source="vLLM 0.33.0 config/vllm.py",
        check=_vl_async,
        engines=("vllm",),
    ),
)
