"""Rules of vLLM about speculation and the model runner."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import BLACKWELL, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_SPECIALIZED: Final = "latency_specialized"
_MOST_DRAFT: Final = 7
_DRAFT: Final = ("--speculative-config", "--spec-method")


def _dspark_stages(context: LaunchContext) -> Iterable[Hit]:
    if context.draft_method not in ("dspark", "xpress") or context.size("pp") == 1:
        return NOTHING
    return hit(
        context,
        f"{context.draft_method} does not run under pipeline parallelism "
        f"{context.size('pp')}: the engine refuses to start",
        "--pipeline-parallel-size",
        *_DRAFT,
        remedy="leave the pipeline out (tensor or data parallelism over the nodes), or the draft",
    )


def _dspark_context(context: LaunchContext) -> Iterable[Hit]:
    if context.draft_method != "dspark" or context.size("dcp") == 1:
        return NOTHING
    return hit(
        context,
        f"vLLM {context.version} refuses a DSpark draft with decode-context parallelism",
        "--decode-context-parallel-size",
        *_DRAFT,
    )


def _no_draft_tokens(context: LaunchContext) -> Iterable[Hit]:
    fields = context.fields("--speculative-config")
    if not fields or "num_speculative_tokens" in fields or context.has("--spec-tokens"):
        return NOTHING
    return hit(context, "num_speculative_tokens is obligatory and missing", *_DRAFT)


def _no_head(context: LaunchContext) -> Iterable[Hit]:
    method = context.draft_method
    if not context.is_k3 or not ("mtp" in method or method in ("eagle", "eagle3")):
        return NOTHING
    if context.draft_name:
        return NOTHING
    message = f"the method {method} needs tensors that Kimi K3's checkpoint does not ship"
    return hit(context, message, *_DRAFT)


def _draft_ranks(context: LaunchContext) -> Iterable[Hit]:
    ranks = context.fields("--speculative-config").get("draft_tensor_parallel_size")
    tp = context.size("tp")
    if not isinstance(ranks, int) or ranks in (1, tp):
        return NOTHING
    message = f"draft_tensor_parallel_size {ranks} of the draft is neither 1 nor the target's {tp}"
    return hit(context, message, *_DRAFT)


def _replay(context: LaunchContext) -> Iterable[Hit]:
    if not context.value("--use-replayssm"):
        return NOTHING
    if not context.draft_method:
        return hit(context, "--use-replayssm needs speculation", "--use-replayssm")
    if context.size("pp") > 1:
        return hit(
            context,
            "--use-replayssm does not run under pipeline parallelism",
            "--use-replayssm",
            "--pipeline-parallel-size",
        )
    if context.text("--mamba-backend") not in ("", "triton"):
        return hit(context, "--use-replayssm needs --mamba-backend triton", "--use-replayssm")
    if context.value("--enable-mamba-cache-stochastic-rounding"):
        return hit(context, "--use-replayssm refuses stochastic rounding", "--use-replayssm")
    return NOTHING


def _replay_runner(context: LaunchContext) -> Iterable[Hit]:
    if not (context.value("--use-replayssm") and context.value("--enable-prefix-caching")):
        return NOTHING
    if context.variable("VLLM_USE_V2_MODEL_RUNNER") != "0":
        return NOTHING
    message = "--use-replayssm with prefix caching needs the V2 model runner"
    return hit(context, message, "--use-replayssm", variable="VLLM_USE_V2_MODEL_RUNNER")


def _old_runner(context: LaunchContext) -> Iterable[Hit]:
    if context.variable("VLLM_USE_V2_MODEL_RUNNER") != "0":
        return NOTHING
    if context.draft_method in ("dspark", "xpress"):
        return hit(
            context,
            f"{context.draft_method} exists only on the V2 model runner",
            *_DRAFT,
            variable="VLLM_USE_V2_MODEL_RUNNER",
            change=Change(variables={"VLLM_USE_V2_MODEL_RUNNER": None}),
        )
    if context.size("pp") > 1 and context.value("--async-scheduling"):
        return hit(
            context,
            "pipeline parallelism with asynchronous scheduling needs the V2 model runner",
            "--pipeline-parallel-size",
            variable="VLLM_USE_V2_MODEL_RUNNER",
        )
    return NOTHING


def _specialized(context: LaunchContext) -> Iterable[Hit]:
    flags = [s.flag for s in context.launch.settings if _SPECIALIZED in str(s.value).casefold()]
    if not flags:
        return NOTHING
    broken = [
        (bool(context.gpu) and context.gpu not in BLACKWELL, "GPUs of sm_100 or sm_103"),
        (context.size("tp") not in (8, 16), "tensor parallelism 8 or 16"),
        (context.size("pp") > 1, "no pipeline"),
        (bool(context.value("--enable-expert-parallel")), "no expert parallelism"),
        (context.size("dcp") not in (1, context.size("tp")), "DCP 1 or the tensor parallelism"),
    ]
    needs = [text for is_broken, text in broken if is_broken]
    if not needs:
        return NOTHING
    return hit(context, f"latency_specialized needs {', '.join(needs)}", *flags)


def _kda_decode(context: LaunchContext) -> Iterable[Hit]:
    flag = "--kda-decode-backend"
    tokens = context.fields("--speculative-config").get("num_speculative_tokens")
    tokens = tokens or context.value("--spec-tokens")
    if context.text(flag) != "flashinfer" or not isinstance(tokens, int) or tokens <= _MOST_DRAFT:
        return NOTHING
    message = f"FlashInfer's KDA decode takes 1 to {_MOST_DRAFT} draft tokens, not {tokens}"
    return hit(context, message, flag, *_DRAFT, "--spec-tokens")


VLLM_DRAFT_RULES: Final = (
    Rule(
        id="vllm-kda-decode",
        severity=Severity.ERROR,
        about="FlashInfer decodes linear layers with more draft tokens than it takes",
        remedy="write 7 draft tokens, or leave --kda-decode-backend out",
        source="vLLM 0.33.0 models/kimi_k3",
        check=_kda_decode,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-dspark-pp",
        severity=Severity.ERROR,
        about="a DSpark draft runs under pipeline parallelism",
        remedy="leave out the pipeline or the draft",
        source="vllm-project/vllm#50098",
        check=_dspark_stages,
        engines=("vllm",),
        failures=(3,),
    ),
    Rule(
        id="vllm-dspark-dcp",
        severity=Severity.ERROR,
        about="a DSpark draft runs with decode-context parallelism",
        remedy="use vLLM 0.33.0, or leave out one of them",
        source="SemiAnalysisAI/InferenceX#2914",
        check=_dspark_context,
        engines=("vllm",),
        failures=(4,),
        until="0.33.0",
    ),
    Rule(
        id="vllm-draft-tokens-missing",
        absence=True,
        severity=Severity.ERROR,
        about="the number of draft tokens is missing",
        remedy='add "num_speculative_tokens":7',
        source="vLLM 0.33.0 config/speculative.py",
        check=_no_draft_tokens,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-draft-head-missing",
        severity=Severity.ERROR,
        about="the method wants a head that the checkpoint lacks",
        remedy="use method dspark with a draft model",
        source="NVIDIA/TensorRT-LLM pull 18905; config.json of moonshotai/Kimi-K3",
        check=_no_head,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-draft-ranks",
        severity=Severity.ERROR,
        about="the draft has a tensor parallelism of its own",
        remedy='write "draft_tensor_parallel_size":1, or the target\'s --tensor-parallel-size',
        source="vLLM 0.33.0 config/speculative.py",
        check=_draft_ranks,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-replayssm",
        absence=True,
        severity=Severity.ERROR,
        about="--use-replayssm stands beside what it refuses",
        remedy="leave --use-replayssm out",
        source="vLLM 0.33.0 config/vllm.py",
        check=_replay,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-replayssm-runner",
        severity=Severity.ERROR,
        about="--use-replayssm with prefix caching runs on the old model runner",
        remedy="leave VLLM_USE_V2_MODEL_RUNNER out",
        source="vLLM 0.33.0 config/vllm.py",
        check=_replay_runner,
        engines=("vllm",),
    ),
    Rule(
        id="vllm-old-runner",
        severity=Severity.ERROR,
        about="the old model runner is chosen for what only the new one has",
        remedy="leave VLLM_USE_V2_MODEL_RUNNER out",
        source="vLLM 0.33.0 config/vllm.py; vllm-project/vllm#45014",
        check=_old_runner,
        engines=("vllm",),
        failures=(42,),
    ),
    Rule(
        id="vllm-latency-specialized",
        absence=True,
        severity=Severity.ERROR,
        about="specialised decode is asked for where it does not run",
        remedy="leave it out, or change the layout",
        source="vLLM 0.33.0 config/vllm.py",
        check=_specialized,
        engines=("vllm",),
    ),
)
