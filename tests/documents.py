"""The code that our pages show: fenced and indented blocks, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from k31ctl.cli.main import DEFAULTS, app_with

ROOT: Final = Path(__file__).parents[1]
# What changed once is told in the words of its time, and the command line's page is its own help.
PAGES: Final = tuple(
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    if page.name != "cli.md"
)
_FENCED = re.compile(
    r"^(?P<above>.*\n)(?P<margin> *)```(?P<kind>\S*).*\n(?P<body>(?:.*\n)*?)(?P=margin)```$",
    re.MULTILINE,
)
_INDENTED = re.compile(r"(?:(?<=\n\n) {4}\S.*\n(?: {4}.*\n|\n)*)")
_WHY_NOT = re.compile(r"<!-- not run: (.+) -->")
_INLINE = re.compile(r"`(k31ctl [^`]+)`")
_ASSIGNMENT = re.compile(r"\w+=")
_REDIRECTION = re.compile(r"(?<!\S)\d?[<>]+&?\s*[^\s;|&]+")
_BEFORE = {"!", "do", "else", "exec", "if", "sudo", "then", "until", "while"}
COMMANDS: Final[Any] = get_command(app_with())


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Code on a page, with the reason why nothing runs it where the page gives one."""

    page: Path
    line: int
    kind: str
    body: str
    why_not: str | None

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """All blocks of code on a page; an indented one has the kind ``indented``."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCED.finditer(text):
        why_not = _WHY_NOT.search(found["above"])
        margin = re.compile(rf"(?m)^{found['margin']}")
        yield Block(
            page=page,
            line=text.count("\n", 0, found.end("above")) + 1,
            kind=found["kind"],
            body=margin.sub("", found["body"]),
            why_not=why_not[1] if why_not else None,
        )
    # A block's lines stay, empty, so that the numbers of those below it stay as well.
    plain = _FENCED.sub(lambda found: "\n" * found[0].count("\n"), text)
    for indented in _INDENTED.finditer(plain):
        yield Block(
            page=page,
            line=plain.count("\n", 0, indented.start()) + 1,
            kind="indented",
            body=re.sub(r"(?m)^ {4}", "", indented[0]),
            why_not=None,
        )


def own_commands(block: Block) -> Iterator[list[str]]:
    """The arguments of every ``k31ctl`` that a block would run; of what is said, commands alone."""
    begins = {"console": ("$ ",), "text": ("$ ", "k31ctl "), "indented": ("$ ", "k31ctl ")}
    for line in block.body.replace("\\\n", " ").splitlines():
        if line.startswith(begins.get(block.kind, "")):
            yield from _own_commands_of(line.removeprefix("$ ").removeprefix("ExecStart="))


def inline_commands(page: Path) -> Iterator[list[str]]:
    """The arguments of the commands that sentences of a page name."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for command in _INLINE.findall(text):
        yield from _own_commands_of(command.replace("\n", " "))


def _own_commands_of(line: str) -> Iterator[list[str]]:
    if "k31ctl " not in line:
        return
    lexer = shlex.shlex(_REDIRECTION.sub("", line), posix=True, punctuation_chars=";|&()")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # a quotation mark of a sentence: no shell
        return
    command: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set(";|&()"):
            while command and (_ASSIGNMENT.match(command[0]) or command[0] in _BEFORE):
                del command[0]
            if command and command[0].rpartition("/")[2] == "k31ctl":
                yield command[1:]
            command = []
        else:
            command.append(word)


def command_of(arguments: list[str]) -> tuple[Any, list[str]]:
    """The command that arguments name, and what is left for it; raises KeyError for none."""
    command, left = COMMANDS, list(arguments)
    while hasattr(command, "commands") and left and not left[0].startswith("-"):
        name = left[0]
        default, known = DEFAULTS.get(command.name, ("", ()))
        if default and name not in known:
            name = default
        else:
            del left[0]
        command = command.commands[name]
    return command, left
