"""Text of shell scripts: words without their quotes, what is too long, what may start an engine."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from k31ctl.serve.read.found import Assigned, SourceWord
from k31ctl.values import frozen

MOST_WORDS: Final = 10_000
_MOST_CHARACTERS: Final = 1 << 20
_EXPANDED: Final = re.compile(
    r"\$[({]?[!#]?([A-Za-z_]\w*)|\benviron(?:\.get)?[(\[]\s*[\"']([A-Za-z_]\w*)|"
    r"\b(?:printenv|getenv\()\s*[\"']?([A-Za-z_]\w*)"
)
_OWN_DEFAULT: Final = re.compile(r"\b([A-Za-z_]\w*)=[^\s$]*\$\{?\1\b")
STARTERS: Final = ("serve", "launch_server", "api_server", "launch_router", "dynamo.")


@frozen
class Command:
    """A simple command: its words, and the variables that it is given.

    ``open_environment`` is whether more of them come from what is not read.
    """

    words: tuple[SourceWord, ...]
    environment: dict[str, Assigned]
    open_environment: bool = False


class TooDeepError(ValueError):
    """The script nests deeper, or holds more, than any launch script does."""


def may_start(text: str) -> bool:
    """Whether a text may hold a command that starts an engine."""
    return any(name in text for name in STARTERS)


def expanded_names(text: str) -> frozenset[str]:
    """The variables that a file reads itself, but for those that only stand in for their own value.

    Also those of ``$$NAME`` and ``$(NAME)``, as Compose and Kubernetes write them.
    """
    found = _EXPANDED.finditer(_OWN_DEFAULT.sub("", text))
    return frozenset(name for each in found for name in each.groups() if name)


def bounded(words: Iterable[SourceWord]) -> tuple[SourceWord, ...]:
    """The words, which are never more than a launch has; TooDeepError where they are."""
    found = tuple(islice(words, MOST_WORDS + 1))
    if len(found) > MOST_WORDS:
        raise TooDeepError("a list of more words than any launch")
    return found


def short(text: str) -> str:
    """The text, which is never longer than a launch's; TooDeepError where it is."""
    if len(text) > _MOST_CHARACTERS:
        raise TooDeepError("a value longer than any launch's")
    return text


def here(word: SourceWord, line: int) -> SourceWord:
    """A word that is written elsewhere, told by the line that brings it, and not to be changed."""
    return replace(word, line=line, start=-1, end=-1, certain=False)


def is_array(text: str) -> bool:
    """Whether an expansion is that of a whole array."""
    return text.strip('"').endswith(("[@]}", "[*]}"))


def is_script(text: str) -> bool:
    """Whether a word is a script of its own: several words, one of which may start an engine."""
    return (" " in text.strip() or "\n" in text) and may_start(text) and not text.startswith("{")


def is_open(text: str) -> bool:
    """Whether a text holds what the shell puts in only when it runs."""
    return "$" in text or "`" in text or "{{" in text


def open_parts(text: str) -> tuple[str, ...]:
    """The words of a text; what the shell still has to put in stays whole, with its spaces."""
    if "{{" in text:
        return (text,)
    parts: list[str] = []
    begun, depth, in_backticks = -1, 0, False
    for at, mark in enumerate(text):
        if mark == "`":
            in_backticks = not in_backticks
        opens = mark in "({" and (depth > 0 or text[at - 1 : at] == "$")
        depth += opens - (depth > 0 and mark in ")}")
        if mark.isspace() and not depth and not in_backticks:
            if begun >= 0:
                parts.append(text[begun:at])
            begun = -1
        elif begun < 0:
            begun = at
    return (*parts, text[begun:]) if begun >= 0 else tuple(parts)


def unescaped(text: str) -> str:
    """A bare word without its backslashes, and without ends of lines that they hide."""
    if "\\" not in text:
        return text
    out, escaped = [], False
    for mark in text.replace("\\\n", ""):
        if mark == "\\" and not escaped:
            escaped = True
            continue
        out.append(mark)
        escaped = False
    return "".join(out)


def unquoted(text: str) -> str:
    r"""A part of a string in double quotes, in which only \\ \" \$ \` and \newline are escapes."""
    if "\\" not in text:
        return text
    text = text.replace("\\\n", "")
    for mark in ('"', "$", "`", "\\"):
        text = text.replace(f"\\{mark}", mark)
    return text


def installs(commands: Sequence[Command]) -> tuple[str, ...]:
    """Return what the commands install with pip or uv, as requirements."""
    found: list[str] = []
    for command in commands:
        texts = [w.text for w in command.words]
        if "install" in texts and any(t.rpartition("/")[2] in ("pip", "pip3", "uv") for t in texts):
            found += [t for t in texts[texts.index("install") + 1 :] if not t.startswith("-")]
    return tuple(found)
