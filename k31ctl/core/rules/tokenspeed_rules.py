"""Rules of TokenSpeed."""

import re
from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import BLACKWELL, FileKind, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_MADE_FOR_IT: Final = ("kimi-k3-dspark", "kimi-k3-speculator.dspark")
_ENOUGH_HOST_BYTES: Final = 2_000_000_000_000
_OTHER_EXPERTS: Final = ("flashinfer_trtllm", "triton", "gluon", "native")
_EXPERT_SIZES: Final = (1, 2, 4, 8)


def _two_sizes(context: LaunchContext) -> Iterable[Hit]:
    flags = ("--tensor-parallel-size", "--attn-tp-size")
    if not all(map(context.has, flags)):
        return NOTHING
    return hit(context, f"{flags[0]} and {flags[1]} exclude each other", *flags)


def _expert_sizes(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or context.dp > 1 or context.ep in _EXPERT_SIZES:
        return NOTHING
    message = f"expert parallelism of Kimi K3 is 1, 2, 4 or 8, not {context.ep}"
    return hit(context, message, "--expert-parallel-size", "--enable-expert-parallel")


def _both_expert_sizes(context: LaunchContext) -> Iterable[Hit]:
    flags = ("--moe-tp-size", "--expert-parallel-size")
    if context.number(flags[0], 1) <= 1 or context.ep <= 1:
        return NOTHING
    return hit(context, "experts are divided by tensors or by experts, not by both", *flags)


def _stages(context: LaunchContext) -> Iterable[Hit]:
    if context.size("pp") == 1:
        return NOTHING
    if context.dp > 1:
        message = "pipeline parallelism does not go with attention data parallelism"
        return hit(context, message, "--pipeline-parallel-size", "--data-parallel-size")
    if context.role == "prefill":
        return NOTHING
    message = "pipeline parallelism runs on a prefill server only"
    return hit(context, message, "--pipeline-parallel-size")


def _context_parallel(context: LaunchContext) -> Iterable[Hit]:
    flag = "--decode-context-parallel-size"
    if context.size("dcp") == 1:
        return NOTHING
    if context.draft_method:
        message = "decode-context parallelism does not go with speculation"
        return hit(context, message, flag, "--speculative-algorithm")
    if not context.has("--disable-kvstore"):
        return hit(
            context,
            "decode-context parallelism needs --disable-kvstore",
            flag,
            change=Change(add=("--disable-kvstore",)),
        )
    if context.role == "decode":
        message = "a decode server takes no decode-context parallelism"
        return hit(context, message, flag, "--disaggregation-mode")
    return NOTHING


def _vision(context: LaunchContext) -> Iterable[Hit]:
    tp = context.size("tp")
    if not context.is_k3 or 12 % tp == 0 or context.value("--language-model-only"):
        return NOTHING
    if context.text("--mm-encoder-tp-mode") == "data" or context.role in ("decode", "encode"):
        return NOTHING
    return hit(
        context,
        f"TP {tp} does not divide the 12 heads of the vision encoder",
        "--mm-encoder-tp-mode",
        "--tensor-parallel-size",
        "--attn-tp-size",
        change=Change(add=("--mm-encoder-tp-mode", "data"))
        if not context.has("--mm-encoder-tp-mode")
        else None,
    )


def _moe_backend(context: LaunchContext) -> Iterable[Hit]:
    backend = context.text("--moe-backend")
    if not context.is_k3 or not backend:
        return NOTHING
    if backend == "triton":
        message = (
            "--moe-backend triton: there is no portable Triton kernel for the SiTU experts of "
            "Kimi K3"
        )
        return hit(context, message, "--moe-backend")
    if not context.gpu:
        return NOTHING
    wanted = {"flashinfer_trtllm": BLACKWELL, "marlin": ("sm_90",)}.get(backend)
    if wanted is None or context.gpu in wanted:
        return NOTHING
    message = f"{backend} is for {' and '.join(wanted)}, not for {context.gpu}"
    return hit(context, message, "--moe-backend")


def _steps(context: LaunchContext) -> Iterable[Hit]:
    tokens = context.number("--speculative-num-draft-tokens", 0)
    steps = context.number("--speculative-num-steps", 0)
    if context.draft_method not in ("dspark", "dflash") or not tokens or not steps:
        return NOTHING
    if steps == tokens - 1:
        return NOTHING
    message = f"{context.draft_method.upper()} takes {tokens - 1:g} steps for {tokens:g} tokens"
    return hit(context, message, "--speculative-num-steps", "--speculative-num-draft-tokens")


def _store(context: LaunchContext) -> Iterable[Hit]:
    if not context.has("--disable-prefix-caching") or context.has("--disable-kvstore"):
        return NOTHING
    message = "the KV store does not go with --disable-prefix-caching"
    return hit(
        context,
        message,
        "--disable-prefix-caching",
        change=Change(add=("--disable-kvstore",)),
    )


def _sampling(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_amd or context.has("--sampling-backend"):
        return NOTHING
    return hit(context, "on AMD the engine decodes greedily unless --sampling-backend is set")


def _address(context: LaunchContext) -> Iterable[Hit]:
    if context.number("--nnodes", 1) <= 1 or context.has("--dist-init-addr"):
        return NOTHING
    if context.kind is FileKind.SBATCH:
        return NOTHING
    return hit(context, "several nodes need --dist-init-addr, or Slurm", "--nnodes")


def _instant(context: LaunchContext) -> Iterable[Hit]:
    if context.text("--load-format") != "instanttensor":
        return NOTHING
    node = context.node
    if node is not None and node.host_memory_bytes > _ENOUGH_HOST_BYTES:
        return NOTHING
    message = "InstantTensor stages without a limit and ran hosts out of memory"
    return hit(context, message, "--load-format")


def _all_to_all(context: LaunchContext) -> Iterable[Hit]:
    backend = context.text("--all2all-backend") or context.text("--moe-a2a-backend")
    if backend == "deepep" and _without_marlin(context):
        return hit(
            context,
            "deepep carries experts of Marlin only",
            "--all2all-backend",
            "--moe-a2a-backend",
            "--moe-backend",
            remedy="leave --all2all-backend out; --moe-backend marlin runs on Hopper only",
        )
    if backend in ("agrs", "flashinfer") and context.dp == 1:
        message = f"{backend} all-to-all needs attention data parallelism"
        return hit(context, message, "--all2all-backend", "--moe-a2a-backend")
    return NOTHING


def _without_marlin(context: LaunchContext) -> bool:
    """Whether the experts are known to run on other kernels than Marlin's."""
    chosen = context.text("--moe-backend")
    if not context.has("--moe-backend") or chosen == "auto":
        return bool(context.gpu) and context.gpu != "sm_90"
    return chosen in _OTHER_EXPERTS


def _acceptance(context: LaunchContext) -> Iterable[Hit]:
    if context.draft_method != "dspark" or not context.is_k3 or context.draft is not None:
        return NOTHING
    name = context.draft_name.rpartition("/")[2].casefold()
    if name in ("", *_MADE_FOR_IT) or "$" in name:
        return NOTHING
    is_repository = re.fullmatch(r"[\w.-]+/[\w.-]+", context.draft_name) is not None
    return hit(
        context,
        "the draft is not one that is published for this engine: drafts of another architecture "
        "were accepted near one token in long answers",
        "--speculative-algorithm",
        "--speculative-draft-model-path",
        severity=None if is_repository else Severity.INFO,
    )


def _arm_graphs(context: LaunchContext) -> Iterable[Hit]:
    node = context.node
    if node is None or node.scale_up_domain_gpus <= node.num_gpus or context.size("nnodes") == 1:
        return NOTHING
    message = "graphs over several Arm hosts need NCCL 2.29.3 or newer"
    severity = Severity.INFO if context.published else None
    return hit(context, message, "--nnodes", severity=severity)


TOKENSPEED_RULES: Final = (
    Rule(
        id="tokenspeed-two-sizes",
        severity=Severity.ERROR,
        about="the size of attention is given twice",
        remedy="keep one of them",
        source="TokenSpeed 0.1.1 runtime/server_args.py",
        check=_two_sizes,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-expert-sizes",
        severity=Severity.ERROR,
        about="expert parallelism is a size that the engine refuses",
        remedy="use 1, 2, 4 or 8",
        source="TokenSpeed 0.1.1 runtime/layers/moe/latent.py",
        check=_expert_sizes,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-expert-tp",
        severity=Severity.ERROR,
        about="experts are divided in two ways",
        remedy="keep one of them",
        source="TokenSpeed 0.1.1 runtime/layers/moe/latent.py",
        check=_both_expert_sizes,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-pipeline",
        severity=Severity.ERROR,
        about="pipeline parallelism runs outside a prefill server",
        remedy="leave --pipeline-parallel-size out",
        source="TokenSpeed 0.1.1 runtime/server_args.py",
        check=_stages,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-dcp",
        absence=True,
        severity=Severity.ERROR,
        about="decode-context parallelism stands beside what it refuses",
        remedy="leave --decode-context-parallel-size out",
        source="TokenSpeed 0.1.1 runtime/server_args.py",
        check=_context_parallel,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-vision-ranks",
        absence=True,
        severity=Severity.ERROR,
        about="the vision encoder is cut into ranks that its heads do not divide into",
        remedy="write --mm-encoder-tp-mode data",
        source="lightseekorg/tokenspeed docs/recipes/models.md",
        check=_vision,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-moe-backend",
        severity=Severity.ERROR,
        about="the kernels of experts do not run here",
        remedy="write --moe-backend auto",
        source="TokenSpeed 0.1.1 runtime/models/kimi_k3.py",
        check=_moe_backend,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-draft-steps",
        severity=Severity.ERROR,
        about="the steps of a draft are not its tokens less one",
        remedy="write one step less than tokens",
        source="TokenSpeed 0.1.1 runtime/server_args.py",
        check=_steps,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-kvstore",
        absence=True,
        severity=Severity.ERROR,
        about="the KV store is on without prefix caching",
        remedy="add --disable-kvstore",
        source="TokenSpeed 0.1.1 runtime/server_args.py",
        check=_store,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-sampling-amd",
        absence=True,
        severity=Severity.INFO,
        about="no sampling backend is chosen on AMD",
        remedy="add --sampling-backend triton",
        source="TokenSpeed 0.1.1 runtime/server_args.py",
        check=_sampling,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-nodes-address",
        absence=True,
        severity=Severity.ERROR,
        about="several nodes have no address to meet at",
        remedy="add --dist-init-addr HEAD:PORT",
        source="TokenSpeed 0.1.1 runtime/server_args.py",
        check=_address,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-instant-tensor",
        severity=Severity.WARNING,
        about="weights are staged without a limit",
        remedy="write --load-format safetensors",
        source="local-inference-lab/vllm#382, lightseekorg/tokenspeed#418",
        check=_instant,
        failures=(30,),
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-all-to-all",
        absence=True,
        severity=Severity.ERROR,
        about="the all-to-all does not go with the experts or the layout",
        remedy="leave the all-to-all to the engine",
        source="TokenSpeed 0.1.1 runtime/server_args.py",
        check=_all_to_all,
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-acceptance",
        severity=Severity.WARNING,
        about="DSPARK speculates with a draft that nobody has published for this engine; only to "
        "know where it is a folder",
        remedy="use --speculative-draft-model-path Inferact/Kimi-K3-DSpark, and watch the accepted "
        "length in the metrics",
        source="lightseekorg/tokenspeed#924, lightseekorg/tokenspeed#879",
        check=_acceptance,
        failures=(32,),
        engines=("tokenspeed",),
    ),
    Rule(
        id="tokenspeed-arm-graphs",
        severity=Severity.WARNING,
        about="graphs are captured over several Arm hosts; only to know where the launch has every "
        "setting of a published recipe",
        remedy="pin NCCL to 2.29.3 or newer, and do not mix InfiniBand with sockets",
        source="TokenSpeed documentation",
        check=_arm_graphs,
        failures=(50,),
        engines=("tokenspeed",),
    ),
)
