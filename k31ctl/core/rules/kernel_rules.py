"""Rules about kernels that are chosen by name and do not run on the GPUs that there are."""

from collections.abc import Iterable, Mapping
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import BLACKWELL, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_CUDA: Final = ("sm_90", *BLACKWELL)
_ROCM: Final = ("gfx950",)
# What is not listed runs anywhere, or nobody has said where.
SGLANG_ATTENTION: Final[Mapping[str, tuple[str, ...]]] = {
    "trtllm_mla": BLACKWELL,
    "cutedsl_mla": BLACKWELL,
    "tokenspeed_mla": BLACKWELL,
    "flashmla": _CUDA,
    "flashinfer": _CUDA,
    "fa3": ("sm_90",),
    "fa4": _CUDA,
    "aiter": _ROCM,
    "wave": _ROCM,
}
SGLANG_EXPERTS: Final[Mapping[str, tuple[str, ...]]] = {
    "flashinfer_mxfp4": BLACKWELL,
    "flashinfer_trtllm": BLACKWELL,
    "flashinfer_trtllm_routed": BLACKWELL,
    "flashinfer_cutedsl": BLACKWELL,
    "flashinfer_megamoe": BLACKWELL,
    "experimental_sgl_trtllm": BLACKWELL,
    "megamoe": BLACKWELL,
    "deep_gemm": BLACKWELL,
    "flashinfer_cutlass": _CUDA,
    "cutlass": _CUDA,
    "marlin": _CUDA,
    "experimental_sgl_marlin": _CUDA,
    "aiter": _ROCM,
}
VLLM_EXPERTS: Final[Mapping[str, tuple[str, ...]]] = {
    "flashinfer_trtllm": BLACKWELL,
    "flashinfer_cutedsl": BLACKWELL,
    "flashinfer_moe_ep_cutedsl": BLACKWELL,
    "flashinfer_moe_ep_mega_deep_gemm": BLACKWELL,
    "deep_gemm": BLACKWELL,
    "deep_gemm_mega_moe": BLACKWELL,
    "flashinfer_cutlass": _CUDA,
    "cutlass": _CUDA,
    "marlin": _CUDA,
    "aiter": _ROCM,
    "aiter_mega_moe": _ROCM,
    "aiter_triton_mxfp4_bf16": _ROCM,
    "aiter_triton_mxfp4_mxfp4": _ROCM,
    "flydsl": _ROCM,
}
_SGLANG_ATTENTION_FLAGS: Final = (
    "--attention-backend",
    "--decode-attention-backend",
    "--prefill-attention-backend",
)
_ATTENTION_THERE: Final = {"sm_90": "flashmla", "gfx950": "triton"}
_EXPERTS_THERE: Final = {"sm_90": "marlin"}
_MEGA: Final = "deep_gemm_mega_moe"


def _elsewhere(
    context: LaunchContext,
    flag: str,
    gpus_of: Mapping[str, tuple[str, ...]],
    there: Mapping[str, str],
) -> tuple[Hit, ...]:
    """A hit where the flag names kernels of other GPUs; ``there`` has what each GPU takes."""
    backend = context.text(flag)
    gpus = gpus_of.get(backend, ())
    if not context.is_k3 or not context.gpu or not gpus or context.gpu in gpus:
        return NOTHING
    message = f"{flag} {backend} runs on {', '.join(gpus)}, not on {context.gpu}"
    other = there.get(context.gpu, "")
    remedy = f"write {flag} {other}" if other else f"leave {flag} out"
    return hit(context, message, flag, remedy=remedy)


def _sglang_attention(context: LaunchContext) -> Iterable[Hit]:
    found: tuple[Hit, ...] = ()
    for flag in _SGLANG_ATTENTION_FLAGS:
        found += _elsewhere(context, flag, SGLANG_ATTENTION, _ATTENTION_THERE)
    return found


def _sglang_experts(context: LaunchContext) -> Iterable[Hit]:
    return _elsewhere(context, "--moe-runner-backend", SGLANG_EXPERTS, _EXPERTS_THERE)


def _vllm_experts(context: LaunchContext) -> Iterable[Hit]:
    return _elsewhere(context, "--moe-backend", VLLM_EXPERTS, _EXPERTS_THERE)


def _mega_fabric(context: LaunchContext) -> Iterable[Hit]:
    node, ranks = context.node, context.ep
    if context.text("--moe-backend") != _MEGA or node is None or context.gpu not in BLACKWELL:
        return NOTHING
    if ranks <= node.scale_up_domain_gpus:
        return NOTHING
    return hit(
        context,
        f"--moe-backend {_MEGA} wants NVLink on every hop: {ranks} expert-parallel ranks reach "
        f"over nodes, and NVLink joins {node.scale_up_domain_gpus} GPUs of {node.id}",
        "--moe-backend",
    )


def _hopper_unset(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or context.gpu != "sm_90" or context.has("--moe-runner-backend"):
        return NOTHING
    return hit(
        context,
        "on Hopper the published recipes choose the Marlin kernels for MXFP4 experts",
        change=Change(add=("--moe-runner-backend", "marlin")),
    )


KERNEL_RULES: Final = (
    Rule(
        id="sglang-attention-gpu",
        severity=Severity.ERROR,
        about="the attention backend does not run on these GPUs",
        remedy="leave --attention-backend out",
        source="SGLang 0.5.23 srt/server_args.py; SGLang cookbook, Kimi-K3",
        check=_sglang_attention,
        engines=("sglang",),
        failures=(25,),
    ),
    Rule(
        id="sglang-experts-gpu",
        severity=Severity.ERROR,
        about="the kernels of the experts do not run on these GPUs",
        remedy="leave --moe-runner-backend out",
        source="SGLang 0.5.23 srt/server_args.py; SGLang cookbook, Kimi-K3",
        check=_sglang_experts,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-hopper-marlin",
        absence=True,
        severity=Severity.INFO,
        about="the kernels of experts are left to the engine on Hopper",
        remedy="write --moe-runner-backend marlin",
        source="SGLang cookbook, Kimi-K3",
        check=_hopper_unset,
        engines=("sglang",),
    ),
    Rule(
        id="vllm-experts-gpu",
        severity=Severity.ERROR,
        about="the kernels of the experts do not run on these GPUs",
        remedy="leave --moe-backend out",
        source="vLLM 0.33.0 model_executor/layers/fused_moe; vllm-project/recipes Kimi-K3.yaml",
        check=_vllm_experts,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-mega-moe-fabric",
        severity=Severity.ERROR,
        about="MegaMoE sends experts over a network between nodes",
        remedy="leave --moe-backend out, and take --all2all-backend deepep_v2",
        source="vllm-project/recipes Kimi-K3.yaml",
        check=_mega_fabric,
        engines=("vllm",),
    ),
)
