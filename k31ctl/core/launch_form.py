"""Where in a command the engine is called, and what stands before that: wrappers, environment."""

import re
from collections.abc import Sequence
from typing import Final

from k31ctl.core.launch import Form
from k31ctl.values import frozen

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON: Final = re.compile(r"(python|pypy)[0-9.]*")
_SCRIPTS: Final = {
    "vllm": Form.VLLM_SERVE,
    "sglang": Form.SGLANG_SERVE,
    "ts": Form.TOKENSPEED_SERVE,
    "tokenspeed": Form.TOKENSPEED_SERVE,
}
_MODULES: Final = {
    "vllm.entrypoints.openai.api_server": Form.VLLM_MODULE,
    "sglang.launch_server": Form.SGLANG_MODULE,
    "sglang_router.launch_router": Form.SGLANG_ROUTER,
    "dynamo.vllm": Form.DYNAMO_VLLM,
    "dynamo.sglang": Form.DYNAMO_SGLANG,
}
_MODULES_WITH_SERVE: Final = {
    "vllm": Form.VLLM_SERVE,
    "vllm.entrypoints.cli.main": Form.VLLM_SERVE,
    "sglang.cli.main": Form.SGLANG_SERVE,
    "tokenspeed": Form.TOKENSPEED_SERVE,
    "tokenspeed.cli": Form.TOKENSPEED_SERVE,
}
_ENGINES: Final = {
    Form.VLLM_SERVE: "vllm",
    Form.VLLM_MODULE: "vllm",
    Form.DYNAMO_VLLM: "vllm",
    Form.SGLANG_SERVE: "sglang",
    Form.SGLANG_MODULE: "sglang",
    Form.SGLANG_ROUTER: "sglang",
    Form.DYNAMO_SGLANG: "sglang",
    Form.TOKENSPEED_SERVE: "tokenspeed",
}


@frozen
class Call:
    """The engine's call in a command: its form, and the index of the first word after it."""

    form: Form
    first: int
    start: int
    environment: dict[str, str]

    @property
    def engine(self) -> str:
        """The engine that is called."""
        return _ENGINES[self.form]


def find_call(words: Sequence[str]) -> Call | None:
    """Return the first call of an engine among the words, or None.

    Any wrapper may stand before it (``exec``, ``env A=b``, ``numactl -N 0``, ``srun --ntasks 2``);
    words there of the form ``NAME=value`` are its environment.
    """
    for at in range(len(words)):
        found = _form_at(words, at)
        if found is not None:
            form, start = found
            return Call(form=form, first=at, start=start, environment=_environment(words[:at]))
    return None


def _form_at(words: Sequence[str], at: int) -> tuple[Form, int] | None:
    """Return the form that begins at this word, and where its own words end."""
    program = words[at].rpartition("/")[2]
    following = words[at + 1] if at + 1 < len(words) else ""
    if program in _SCRIPTS and following == "serve":
        return _SCRIPTS[program], at + 2
    if not _PYTHON.fullmatch(program):
        return None
    module_at = _module_at(words, at + 1)
    module = words[module_at] if module_at < len(words) else ""
    after = words[module_at + 1] if module_at + 1 < len(words) else ""
    if module in _MODULES:
        return _MODULES[module], module_at + 1
    if module in _MODULES_WITH_SERVE and after == "serve":
        return _MODULES_WITH_SERVE[module], module_at + 2
    return None


def _module_at(words: Sequence[str], at: int) -> int:
    """Return the index of the word behind Python's ``-m``, past its other options."""
    while at < len(words) and words[at].startswith("-"):
        if words[at] == "-m":
            return at + 1
        at += 2 if words[at] in ("-X", "-W") else 1
    return len(words)


def _environment(words: Sequence[str]) -> dict[str, str]:
    pairs = (word.partition("=") for word in words if _ASSIGNMENT.match(word))
    return {name: value for name, _, value in pairs}
