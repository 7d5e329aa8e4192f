"""A launch command as it was read: the engine, its settings in their order, and what is wrong."""

from enum import StrEnum

from k31ctl.values import frozen


class Form(StrEnum):
    """How an engine was called; the form decides what may stand in front of the flags."""

    VLLM_SERVE = "vllm serve"
    VLLM_MODULE = "python -m vllm.entrypoints.openai.api_server"
    SGLANG_SERVE = "sglang serve"
    SGLANG_MODULE = "python -m sglang.launch_server"
    SGLANG_ROUTER = "python -m sglang_router.launch_router"
    TOKENSPEED_SERVE = "ts serve"
    DYNAMO_VLLM = "python -m dynamo.vllm"
    DYNAMO_SGLANG = "python -m dynamo.sglang"


class Program(StrEnum):
    """The program that a flag ends up in."""

    ENGINE = "engine"
    GATEWAY = "gateway"
    ORCHESTRATOR = "orchestrator"


class Problem(StrEnum):
    """What can be wrong with one flag, word or variable."""

    UNKNOWN_FLAG = "unknown-flag"
    AMBIGUOUS_FLAG = "ambiguous-flag"
    MISSING_VALUE = "missing-value"
    UNWANTED_VALUE = "unwanted-value"
    BAD_TYPE = "bad-type"
    BAD_CHOICE = "bad-choice"
    UNEXPECTED_WORD = "unexpected-word"
    MISSING_FLAG = "missing-flag"
    MODEL_TWICE = "model-twice"
    BAD_RUNTIME_CHOICE = "bad-runtime-choice"
    UNKNOWN_FIELD = "unknown-field"
    TO_GATEWAY = "unknown-flag-to-gateway"
    ABBREVIATED_FLAG = "abbreviated-flag"
    REPEATED_FLAG = "repeated-flag"
    OVERRIDDEN_OBJECT = "overridden-object"
    HIDDEN_SPELLING = "hidden-spelling"
    DEPRECATED_FLAG = "deprecated-flag"
    CONFIG_FILE = "config-file"
    UNREAD_VARIABLE = "unread-variable"


class Stage(StrEnum):
    """When it shows: the parser refuses, the engine or gateway does later, or nothing does."""

    PARSING = "parsing"
    START = "start"
    NONE = "none"


_STARTS = {
    Problem.BAD_RUNTIME_CHOICE: Stage.START,
    Problem.UNKNOWN_FIELD: Stage.START,
    Problem.TO_GATEWAY: Stage.START,
    **dict.fromkeys(
        (
            Problem.ABBREVIATED_FLAG,
            Problem.REPEATED_FLAG,
            Problem.OVERRIDDEN_OBJECT,
            Problem.HIDDEN_SPELLING,
            Problem.DEPRECATED_FLAG,
            Problem.CONFIG_FILE,
            Problem.UNREAD_VARIABLE,
        ),
        Stage.NONE,
    ),
}


@frozen
class ReadProblem:
    """One thing wrong: where in the words it stands, and what would be right.

    ``subject`` is the flag, field, word or variable as written; ``candidates`` are what an
    ambiguous one could mean, what may stand there instead, or what comes near. ``positions`` are
    indices into the words of the launch, none for what is missing or comes from the environment.
    """

    problem: Problem
    subject: str
    message: str
    positions: tuple[int, ...] = ()
    candidates: tuple[str, ...] = ()

    @property
    def stage(self) -> Stage:
        """When it shows."""
        return _STARTS.get(self.problem, Stage.PARSING)


@frozen
class Setting:
    """One use of a flag.

    ``flag`` is the documented name, or the destination of a positional argument; ``spelling`` is
    as written. ``words`` are its values before they were read, ``value`` what the engine makes of
    them: a truth value for a switch, a tuple where the flag takes several words.
    """

    flag: str
    dest: str
    spelling: str
    words: tuple[str, ...]
    value: object
    positions: tuple[int, ...]
    program: Program = Program.ENGINE


@frozen
class Launch:
    """A command that starts an engine; ``start`` is the index of the first word after its form."""

    engine: str
    version: str
    form: Form
    words: tuple[str, ...]
    start: int
    wrapper: tuple[str, ...]
    environment: dict[str, str]
    settings: tuple[Setting, ...]
    problems: tuple[ReadProblem, ...]
    model: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the engine's own parser would take it."""
        return all(found.stage is not Stage.PARSING for found in self.problems)

    def setting(self, flag: str) -> Setting | None:
        """The use of this flag that counts: the last one."""
        return next((s for s in reversed(self.settings) if s.flag == flag), None)

    def value(self, flag: str, default: object = None) -> object:
        """What the flag with this name was set to, else ``default``."""
        found = self.setting(flag)
        return default if found is None else found.value
