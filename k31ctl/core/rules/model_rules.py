"""Rules about the model: which release reads it, on which GPUs, with which parsers."""

import re
from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.launch import Form
from k31ctl.core.rules.context import K31, LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, hit

_PARSER: Final = "kimi_k3"
_PARSED_ELSEWHERE: Final = (Form.DYNAMO_VLLM, Form.DYNAMO_SGLANG, Form.SGLANG_ROUTER)
_DRAFT_FLAGS: Final = ("--speculative-config", "--spec-model", "--speculative-draft-model-path")
_OF_K2: Final = re.compile(r"kimi[-_]?k2(?![0-9])", re.IGNORECASE)
_OLD_GPUS: Final = ("mi300", "mi308", "mi325", "gfx942")
_FIRST_RELEASE: Final = {"vllm": "0.27.1", "sglang": "0.5.17", "tokenspeed": "0.1.0"}
_K31_WAY_OUT: Final = {
    "vllm": "an image of vLLM's main branch newer than 0.33.0, or the NIM container "
    "2.1.6-variant-kimi-k3.1-pro",
    "sglang": "the branch kimi-k31-pro of SGLang",
    "tokenspeed": "vLLM's main branch or SGLang's kimi-k31-pro",
}


def _unreadable(context: LaunchContext) -> Iterable[Hit]:
    if context.architecture != K31 or not context.is_release:
        return NOTHING
    if context.version != context.catalog.version and not context.before(context.catalog.version):
        return NOTHING
    return hit(
        context,
        f"{context.name} {context.version} cannot read {K31}: no release up to "
        f"{context.catalog.version} has Kimi K3.1's sparse attention",
        remedy=f"use {_K31_WAY_OUT.get(context.name, 'another engine')}, or serve Kimi K3",
    )


def _too_old(context: LaunchContext) -> Iterable[Hit]:
    first = _FIRST_RELEASE.get(context.name, "")
    if not context.is_k3 or context.architecture == K31 or not context.before(first):
        return NOTHING
    return hit(
        context,
        f"{context.name} {context.version} is older than {first}, the first that reads Kimi K3",
        remedy=f"use {context.name} {first} or newer",
    )


def _old_gpu(context: LaunchContext) -> Iterable[Hit]:
    hint = f"{context.gpu_hint} {context.gpu}".casefold()
    if not context.is_k3 or not any(name in hint for name in _OLD_GPUS):
        return NOTHING
    return hit(context, "the MLA kernel of this model wants gfx950; MI300-class GPUs are gfx942")


def _unsupported_gpu(context: LaunchContext) -> Iterable[Hit]:
    engine, node = context.engine, context.node
    if engine is None or node is None or not context.is_k3:
        return NOTHING
    if node.gpu.vendor in engine.vendors and (
        not engine.gpu_architectures or context.gpu in engine.gpu_architectures
    ):
        if not (context.architecture == K31 and context.gpu in engine.sparse_excluded_gpus):
            return NOTHING
        return hit(context, f"{engine.name} has no sparse-attention kernel for {node.gpu.name}")
    return hit(context, f"{engine.name} does not run this model on {node.gpu.name}")


def _no_trust(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or context.value("--trust-remote-code"):
        return NOTHING
    if context.launch.form is Form.SGLANG_ROUTER:
        return NOTHING
    return hit(
        context,
        "--trust-remote-code is missing: tokenizer and processor of Kimi K3 are code in its "
        "repository, and the engine refuses to load them",
        change=Change(add=("--trust-remote-code",)),
    )


def _wrong_parser(context: LaunchContext, flag: str) -> Iterable[Hit]:
    setting = context.launch.setting(flag)
    if not context.is_k3 or setting is None or context.text(flag) in (_PARSER, "auto", ""):
        return NOTHING
    change = None
    if len(setting.positions) > 1:
        change = Change(replace={setting.positions[-1]: _PARSER})
    return hit(
        context,
        f"{flag} {setting.value} does not read what Kimi K3 writes: markers leak into the answer "
        "and calls are lost",
        flag,
        remedy=f"write {flag} {_PARSER}",
        change=change,
    )


def _wrong_tool_parser(context: LaunchContext) -> Iterable[Hit]:
    return _wrong_parser(context, "--tool-call-parser")


def _wrong_reasoning_parser(context: LaunchContext) -> Iterable[Hit]:
    return _wrong_parser(context, "--reasoning-parser")


def _no_parser(context: LaunchContext) -> Iterable[Hit]:
    form = context.launch.form
    if not context.is_k3 or form in _PARSED_ELSEWHERE or context.name == "tokenspeed":
        return NOTHING
    if context.role or context.fields("--kv-transfer-config"):
        return NOTHING
    flags = ("--tool-call-parser", "--reasoning-parser")
    missing = [flag for flag in flags if not context.has(flag)]
    if not missing:
        return NOTHING
    words = tuple(word for flag in missing for word in (flag, _PARSER))
    return hit(
        context,
        f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: "
        "Kimi K3's markers stay in the answer",
        remedy=f"add {' '.join(words)}",
        change=Change(add=words),
    )


def _draft_of_another(context: LaunchContext) -> Iterable[Hit]:
    draft = context.draft
    if draft is None or context.name in draft.engines:
        return NOTHING
    return hit(
        context,
        f"{draft.name} is a draft for {', '.join(draft.engines)}, not for {context.name}",
        *_DRAFT_FLAGS,
    )


def _draft_of_another_model(context: LaunchContext) -> Iterable[Hit]:
    draft, model = context.draft, context.model
    if draft is None and context.is_k3 and _OF_K2.search(context.draft_name):
        message = f"{context.draft_name} is a draft of Kimi K2, not of this model"
        return hit(context, message, *_DRAFT_FLAGS)
    if draft is None or model is None or not draft.targets or model.id in draft.targets:
        return NOTHING
    return hit(
        context,
        f"{draft.name} was made for {', '.join(draft.targets)}, not for {model.id}",
        *_DRAFT_FLAGS,
    )


def _quantization(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or not context.has("--quantization"):
        return NOTHING
    given = context.text("--quantization")
    if given in ("mxfp4", "nvfp4", "compressed-tensors"):
        if context.name != "vllm":
            return NOTHING
        message = (
            f"--quantization {given} is needless: the engine takes the format out of the "
            "checkpoint and loads its compressed tensors as mxfp4"
        )
        return hit(context, message, "--quantization", severity=Severity.WARNING)
    if given in ("", "none") or "$" in given or "nvfp4" in context.launch.model.casefold():
        return NOTHING
    return hit(
        context,
        f"--quantization {context.value('--quantization')} is not what the checkpoint is: its "
        "experts are MXFP4 and the engine finds that out for itself",
        "--quantization",
    )


def _chat_template(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or not context.has("--chat-template"):
        return NOTHING
    return hit(
        context,
        "Kimi K3 has no Jinja template: its tokenizer's own code writes the prompt",
        "--chat-template",
    )


def _bare_install(context: LaunchContext) -> Iterable[Hit]:
    if not context.is_k3 or not context.installs:
        return NOTHING
    if any("blobfile" in word or "tiktoken" in word for word in context.installs):
        return NOTHING
    return hit(
        context,
        f"the file installs {' '.join(context.installs)[:80]} and not blobfile, without which "
        "tiktoken cannot read the vocabulary from a remote path",
    )


ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
MODEL_RULES: Final = (
    Rule(
        id="model-k31-unsupported",
        severity=ERROR,
        about="Kimi K3.1 is served with a release that has no sparse attention for it",
        remedy="use a build that reads KimiK31ForConditionalGeneration, or serve Kimi K3",
        source="model registries of vLLM 0.33.0, SGLang 0.5.23 and TokenSpeed 0.1.1",
        check=_unreadable,
        failures=(33,),
    ),
    Rule(
        id="engine-too-old",
        severity=ERROR,
        about="the release is older than the first that reads Kimi K3",
        remedy="use a newer release",
        source="vllm-project/vllm-ascend#15086, vllm-project/recipes Kimi-K3",
        check=_too_old,
        failures=(33,),
    ),
    Rule(
        id="gpu-mi300-class",
        severity=ERROR,
        about="the model runs on MI300-class GPUs",
        remedy="use MI350X or MI355X",
        source="vllm-project/vllm#51964",
        check=_old_gpu,
        failures=(9, 41),
    ),
    Rule(
        id="gpu-unsupported",
        severity=ERROR,
        about="the engine does not run this model on these GPUs",
        remedy="use data-centre GPUs that the engine's recipes name, such as B300 or MI355X",
        source="vllm-project/vllm#31936, vllm-project/vllm#32141",
        check=_unsupported_gpu,
        failures=(37, 41),
    ),
    Rule(
        id="trust-remote-code-missing",
        absence=True,
        severity=ERROR,
        about="--trust-remote-code is missing",
        remedy="add --trust-remote-code",
        source="vllm-project/recipes pull 116; every published recipe of Kimi K3",
        check=_no_trust,
        failures=(44,),
    ),
    Rule(
        id="tool-parser-wrong",
        severity=ERROR,
        about="the tool-call parser is another model's",
        remedy="write --tool-call-parser kimi_k3",
        source="vllm-project/vllm#51399, vllm-project/vllm pulls 28543 and 38579",
        check=_wrong_tool_parser,
        failures=(12, 13),
    ),
    Rule(
        id="reasoning-parser-wrong",
        severity=ERROR,
        about="the reasoning parser is another model's",
        remedy="write --reasoning-parser kimi_k3",
        source="vllm-project/vllm#51412, vllm-project/vllm#54273",
        check=_wrong_reasoning_parser,
        failures=(12, 13),
    ),
    Rule(
        id="parser-missing",
        absence=True,
        severity=ERROR,
        about="a parser of the pair is missing on a server that answers clients itself",
        remedy="add --tool-call-parser kimi_k3 and --reasoning-parser kimi_k3",
        source="vllm-project/vllm#51399, vllm-project/vllm#51412",
        check=_no_parser,
        engines=("vllm", "sglang"),
        failures=(12,),
    ),
    Rule(
        id="draft-engine",
        severity=ERROR,
        about="the draft model has an architecture that the engine does not speculate with",
        remedy="use a draft of this engine: k31ctl profiles list drafts",
        source="model cards of the drafts; lightseekorg/tokenspeed#924",
        check=_draft_of_another,
        failures=(32,),
    ),
    Rule(
        id="draft-model",
        severity=ERROR,
        about="the draft model was trained on another target",
        remedy="use a draft of this model: k31ctl profiles list drafts",
        source="model cards of the drafts",
        check=_draft_of_another_model,
        failures=(32,),
    ),
    Rule(
        id="quantization-given",
        severity=ERROR,
        about="--quantization names a format that the checkpoint does not have, or one that "
        "vLLM finds out for itself; then a warning",
        remedy="leave --quantization out",
        source="vLLM 0.33.0 config/model.py",
        check=_quantization,
    ),
    Rule(
        id="chat-template-given",
        severity=WARNING,
        about="a Jinja template is given to a model whose tokenizer writes its prompts",
        remedy="leave --chat-template out",
        source="tokenization code of moonshotai/Kimi-K3; vLLM 0.33.0 renderers/kimi_k3.py",
        check=_chat_template,
    ),
    Rule(
        id="install-without-blobfile",
        severity=WARNING,
        about="the file installs an engine into a bare environment without blobfile",
        remedy="add blobfile to pip install, or use the official image or local files",
        source="vllm-project/vllm#21750",
        check=_bare_install,
        failures=(43,),
    ),
)
