"""Rules of SGLang about speculation."""

from collections.abc import Iterable
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import LaunchContext
from k31ctl.core.rules.finding import Change
from k31ctl.core.rules.rule import NOTHING, Hit, Rule, drop, hit

_ALGORITHM: Final = "--speculative-algorithm"
_A2A_WITH_DRAFT: Final = ("", "none", "megamoe", "mori")


def _dspark_stages(context: LaunchContext) -> Iterable[Hit]:
    if context.draft_method != "dspark" or context.size("pp") == 1 or context.role == "prefill":
        return NOTHING
    message = "DSPARK does not run under pipeline parallelism, but on a prefill server"
    return hit(context, message, _ALGORITHM, "--pp-size")


def _dspark_path(context: LaunchContext) -> Iterable[Hit]:
    if context.draft_method != "dspark" or context.draft_name:
        return NOTHING
    return hit(context, "DSPARK needs --speculative-draft-model-path", _ALGORITHM)


def _dspark_attention_dp(context: LaunchContext) -> Iterable[Hit]:
    if context.draft_method != "dspark" or context.attention_dp == 1:
        return NOTHING
    if not context.value("--enable-dp-lm-head"):
        return hit(
            context,
            "DSPARK with attention data parallelism needs --enable-dp-lm-head",
            _ALGORITHM,
            change=Change(add=("--enable-dp-lm-head",)),
        )
    if context.text("--moe-a2a-backend") not in _A2A_WITH_DRAFT:
        message = "DSPARK with attention data parallelism wants all-to-all none, megamoe or mori"
        return hit(context, message, "--moe-a2a-backend")
    return NOTHING


def _dspark_budget(context: LaunchContext) -> Iterable[Hit]:
    if context.draft_method not in ("dspark", "dflash") or context.attention_dp == 1:
        return NOTHING
    message = "the draft's cache is budgeted with the wrong size under attention data parallelism"
    return hit(context, message, _ALGORITHM, "--attn-dp-size", "--dp-size")


def _dspark_context(context: LaunchContext) -> Iterable[Hit]:
    name = "SGLANG_RAGGED_VERIFY_MODE"
    if context.draft_method != "dspark" or context.size("dcp") == 1:
        return NOTHING
    if context.variable(name) == "static":
        return NOTHING
    return hit(
        context,
        "DSPARK with decode-context parallelism verifies in the static mode only",
        _ALGORITHM,
        "--dcp-size",
        variable=name,
        change=Change(variables={name: "static"}),
    )


def _dspark_requests(context: LaunchContext) -> Iterable[Hit]:
    if not context.draft_method or context.draft_method == "none":
        return NOTHING
    if context.has("--max-running-requests"):
        return NOTHING
    message = "without --max-running-requests speculation runs at most 48 requests at once"
    return hit(context, message, _ALGORITHM)


def _dspark_long(context: LaunchContext) -> Iterable[Hit]:
    if context.draft_method != "dspark" or context.gpu != "sm_103":
        return NOTHING
    message = "DSPARK ended with Xid 13 on B300 in prompts of 188 to 303 thousand tokens"
    return hit(context, message, _ALGORITHM)


def _replay(context: LaunchContext) -> Iterable[Hit]:
    spec, plain = "--enable-linear-replayssm-spec", "--enable-linear-replayssm"
    if context.value(spec) and context.value(plain):
        return hit(context, f"{spec} and {plain} exclude each other", spec, plain)
    if context.value(spec) and context.role == "prefill":
        return hit(
            context,
            f"{spec} does not run on a prefill server",
            spec,
            "--disaggregation-mode",
            remedy=f"leave {spec} out",
            change=drop(context, spec),
        )
    if context.value(plain) and context.role:
        return hit(context, f"{plain} does not run when disaggregated", plain)
    if context.value(plain) and context.text("--mamba-radix-cache-strategy") not in ("no_buffer",):
        message = f"{plain} needs --mamba-radix-cache-strategy no_buffer"
        return hit(context, message, plain, "--mamba-radix-cache-strategy")
    return NOTHING


def _dflash_prefix(context: LaunchContext) -> Iterable[Hit]:
    if context.draft_method != "dflash" or context.value("--disable-radix-cache"):
        return NOTHING
    return hit(context, "DFLASH with prefix caching crashed on B300", _ALGORITHM)


SGLANG_DRAFT_RULES: Final = (
    Rule(
        id="sglang-dspark-pp",
        severity=Severity.ERROR,
        about="DSPARK runs under pipeline parallelism",
        remedy="leave out the pipeline or the draft",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_dspark_stages,
        failures=(3,),
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dspark-path",
        absence=True,
        severity=Severity.ERROR,
        about="DSPARK has no draft model",
        remedy="add --speculative-draft-model-path RadixArk/Kimi-K3-DSpark",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_dspark_path,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dspark-attention-dp",
        absence=True,
        severity=Severity.ERROR,
        about="DSPARK runs with attention data parallelism and lacks what that needs",
        remedy="add --enable-dp-lm-head, and all-to-all none, megamoe or mori",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_dspark_attention_dp,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-draft-budget",
        severity=Severity.ERROR,
        about="the cache of a draft is budgeted with the wrong size",
        remedy="use 0.5.23 or newer",
        source="sgl-project/sglang#38202",
        check=_dspark_budget,
        failures=(21,),
        until="0.5.23",
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dspark-dcp",
        unset=True,
        severity=Severity.ERROR,
        about="DSPARK runs with decode-context parallelism in another mode than static",
        remedy="set SGLANG_RAGGED_VERIFY_MODE=static",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_dspark_context,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-draft-requests",
        absence=True,
        severity=Severity.INFO,
        about="speculation runs without --max-running-requests",
        remedy="set --max-running-requests",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_dspark_requests,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dspark-long",
        severity=Severity.WARNING,
        about="DSPARK runs on B300 with an early build",
        remedy="use 0.5.20 or newer",
        source="sgl-project/sglang#32855",
        check=_dspark_long,
        failures=(17,),
        until="0.5.20",
        engines=("sglang",),
    ),
    Rule(
        id="sglang-replayssm",
        severity=Severity.ERROR,
        about="replay of states stands beside what it refuses",
        remedy="leave the flag out",
        source="SGLang 0.5.23 srt/server_args.py",
        check=_replay,
        engines=("sglang",),
    ),
    Rule(
        id="sglang-dflash-prefix",
        severity=Severity.WARNING,
        about="DFLASH runs with prefix caching on an early build",
        remedy="use 0.5.20 or newer, or add --disable-radix-cache",
        source="sgl-project/sglang#28528",
        check=_dflash_prefix,
        failures=(26,),
        until="0.5.20",
        engines=("sglang",),
    ),
)
