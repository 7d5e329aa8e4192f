"""What the reader of a command found wrong, as findings: flags, values, variables."""

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.launch import Problem, ReadProblem
from k31ctl.core.rules.context import LaunchContext
from k31ctl.core.rules.finding import Change, Finding
from k31ctl.core.rules.open_values import known_or
from k31ctl.values import frozen

ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


@frozen
class Reading:
    """How one kind of problem is told; ``failures`` as in a rule."""

    id: str
    severity: Severity
    about: str
    remedy: str
    failures: tuple[int, ...] = ()


_FLAG: Final = "see the engine's --help"
READINGS: Final[dict[Problem, Reading]] = {
    Problem.UNKNOWN_FLAG: Reading(
        id="flag-unknown",
        severity=ERROR,
        about="the release has no such flag",
        remedy="take it out",
        failures=(54,),
    ),
    Problem.AMBIGUOUS_FLAG: Reading(
        id="flag-ambiguous",
        severity=ERROR,
        about="the flag is the beginning of several, and the parser refuses to choose",
        remedy="write one of them in full",
        failures=(54,),
    ),
    Problem.MISSING_VALUE: Reading(
        id="flag-without-value",
        severity=ERROR,
        about="the flag needs a value",
        remedy="give it one",
    ),
    Problem.UNWANTED_VALUE: Reading(
        id="flag-with-value",
        severity=ERROR,
        about="the flag stands alone and is given a value",
        remedy="take the value out",
    ),
    Problem.BAD_TYPE: Reading(
        id="flag-bad-type",
        severity=ERROR,
        about="the value is not of the flag's type",
        remedy="mend the value",
    ),
    Problem.BAD_CHOICE: Reading(
        id="flag-bad-choice",
        severity=ERROR,
        about="the parser does not take this value",
        remedy="take one of its choices",
        failures=(13,),
    ),
    Problem.UNEXPECTED_WORD: Reading(
        id="word-unexpected",
        severity=ERROR,
        about="the word belongs to no flag",
        remedy="take it out, or write the flag that it belongs to",
    ),
    Problem.MISSING_FLAG: Reading(
        id="flag-missing",
        severity=ERROR,
        about="the parser does not start without this flag",
        remedy="add it",
    ),
    Problem.MODEL_TWICE: Reading(
        id="model-twice",
        severity=ERROR,
        about="the model is named as a word and with --model",
        remedy="name it once, in front or with --model",
    ),
    Problem.BAD_RUNTIME_CHOICE: Reading(
        id="flag-bad-value",
        severity=ERROR,
        about="no list of the release holds this value; the engine refuses it after parsing",
        remedy="take a value that it has",
        failures=(13,),
    ),
    Problem.UNKNOWN_FIELD: Reading(
        id="field-unknown",
        severity=ERROR,
        about="the flag's JSON object has no such field",
        remedy="take the field out",
    ),
    Problem.TO_GATEWAY: Reading(
        id="flag-to-gateway",
        severity=ERROR,
        about="neither the engine nor the gateway that gets the flag knows it",
        remedy="take it out",
        failures=(54,),
    ),
    Problem.ABBREVIATED_FLAG: Reading(
        id="flag-abbreviated",
        severity=INFO,
        about="only the beginning of the flag is written; a later release may refuse it",
        remedy="write it in full",
    ),
    Problem.REPEATED_FLAG: Reading(
        id="flag-repeated",
        severity=WARNING,
        about="the flag is set twice and only the last use counts",
        remedy="keep the one that you mean",
    ),
    Problem.OVERRIDDEN_OBJECT: Reading(
        id="object-overridden",
        severity=WARNING,
        about="a JSON object replaces fields that were set before",
        remedy="write all fields in one place",
    ),
    Problem.HIDDEN_SPELLING: Reading(
        id="flag-old-spelling",
        severity=INFO,
        about="the spelling still parses, and the engine's help no longer shows it",
        remedy="write the documented spelling",
        failures=(54,),
    ),
    Problem.DEPRECATED_FLAG: Reading(
        id="flag-deprecated",
        severity=WARNING,
        about="the flag is deprecated and will go",
        remedy=_FLAG,
        failures=(54,),
    ),
    Problem.CONFIG_FILE: Reading(
        id="config-file",
        severity=INFO,
        about="flags in a file of settings are not read",
        remedy="lint with the flags written out",
    ),
    Problem.UNREAD_VARIABLE: Reading(
        id="variable-unread",
        severity=WARNING,
        about="nothing in the release reads the variable",
        remedy="take it out",
        failures=(54,),
    ),
}

# What took the place of a flag or variable that is gone, where the name alone does not say so.
_REPLACED: Final[Mapping[str, tuple[str, str]]] = {
    "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4": ("VLLM_ROCM_USE_AITER_MOE_SITUV2", "a8w4"),
}
_RENAMED: Final[Mapping[str, str]] = {"--cuda-graph-max-bs": "--cuda-graph-max-bs-decode"}
_STARTUP: Final = (
    Problem.UNKNOWN_FLAG,
    Problem.AMBIGUOUS_FLAG,
    Problem.BAD_CHOICE,
    Problem.BAD_RUNTIME_CHOICE,
    Problem.UNKNOWN_FIELD,
    Problem.TO_GATEWAY,
    Problem.UNREAD_VARIABLE,
)


def read_findings(context: LaunchContext) -> Iterable[Finding]:
    """Return what the reader found, each with its remedy and, where it is certain, its change.

    Where the flags are those of another release, what it lacks is only a warning.
    """
    for problem in context.launch.problems:
        yield _finding(problem, context)


def _finding(problem: ReadProblem, context: LaunchContext) -> Finding:
    told = READINGS[problem.problem]
    severity = told.severity
    exact = context.version == context.catalog.version
    if not exact and problem.problem in _STARTUP and severity is ERROR:
        severity = WARNING
    change = _change(problem, context)
    variable = problem.subject if problem.problem is Problem.UNREAD_VARIABLE else ""
    return Finding(
        id=told.id,
        severity=severity,
        message=_message(problem, context),
        remedy=_remedy(problem, told, context),
        source=f"argument parser of {context.release}",
        positions=problem.positions,
        variable=variable,
        change=change,
    )


def _message(problem: ReadProblem, context: LaunchContext) -> str:
    if problem.problem is Problem.AMBIGUOUS_FLAG:
        return (
            f"{problem.message}: {problem.subject.partition('=')[0]} is ambiguous in "
            f"{context.release} and stops it at start"
        )
    return problem.message


def _remedy(problem: ReadProblem, told: Reading, context: LaunchContext) -> str:
    name = problem.subject.partition("=")[0]
    if name in _REPLACED:
        variable, value = _REPLACED[name]
        return f"set {variable}={value}"
    if name == "--enable-dp-attention":
        groups = known_or(lambda: str(context.dp), str(context.value("--dp-size")))
        return f"write --attn-dp-size {groups} and leave --dp-size out"
    if name in _RENAMED and _RENAMED[name] in problem.candidates:
        words = " ".join(context.launch.words[p] for p in problem.positions[1:])
        return f"write {_RENAMED[name]} {words}".rstrip()
    candidates = problem.candidates or _near(problem, context)
    if candidates:
        quoted = ", ".join(candidates)
        return f"{told.remedy}: {quoted}" if told.severity is not INFO else f"write {quoted}"
    return told.remedy


def _near(problem: ReadProblem, context: LaunchContext) -> tuple[str, ...]:
    """Flags of the engine that an unknown one may have been meant for."""
    if problem.problem not in (Problem.UNKNOWN_FLAG, Problem.TO_GATEWAY):
        return ()
    known = [name for flag in context.catalog.flags for name in flag.spellings]
    name = problem.subject.partition("=")[0]
    return tuple(difflib.get_close_matches(name, known, n=2, cutoff=0.85))


def _change(problem: ReadProblem, context: LaunchContext) -> Change | None:
    """The edit that is certain: a rename with one successor, or a name that nothing reads."""
    name, equals, value = problem.subject.partition("=")
    match problem.problem:
        case Problem.UNREAD_VARIABLE if name in _REPLACED:
            new, text = _REPLACED[name]
            return Change(variables={name: None, new: text})
        case Problem.UNREAD_VARIABLE if not problem.candidates:
            return Change(variables={name: None})
        case Problem.AMBIGUOUS_FLAG if name in _RENAMED and problem.positions:
            new = _RENAMED[name] + (f"={value}" if equals else "")
            return Change(replace={problem.positions[0]: new})
        case Problem.HIDDEN_SPELLING | Problem.ABBREVIATED_FLAG if (
            len(problem.candidates) == 1 and problem.positions
        ):
            written = context.launch.words[problem.positions[0]]
            tail = written.partition("=")[2]
            new = problem.candidates[0] + (f"={tail}" if "=" in written else "")
            return Change(replace={problem.positions[0]: new})
        case Problem.DEPRECATED_FLAG if name == "--enable-dp-attention":
            return _attention_dp(problem, context)
    return None


def _attention_dp(problem: ReadProblem, context: LaunchContext) -> Change | None:
    """SGLang's deprecated pair as the one flag that took its place."""
    size = context.launch.setting("--dp-size")
    if size is None or context.has("--attn-dp-size") or len(size.positions) != 2:  # noqa: PLR2004
        return None
    return Change(remove=problem.positions, replace={size.positions[0]: "--attn-dp-size"})


def merged_object(context: LaunchContext, flag: str, fields: Mapping[str, object]) -> Change | None:
    """Return the change that sets fields of a flag's JSON object and keeps the others.

    None where a part of the object is only known at run time, which no change may write out.
    """
    if context.is_open(flag):
        return None
    text = json.dumps({**context.fields(flag), **fields}, separators=(",", ":"))
    setting = context.launch.setting(flag)
    if setting is None:
        return Change(add=(flag, text))
    last = setting.positions[-1]
    if len(setting.positions) == 1:
        head = context.launch.words[last].partition("=")[0]
        return Change(replace={last: f"{head}={text}"})
    return Change(replace={last: text})
