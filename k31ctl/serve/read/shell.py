"""Shell scripts read without being run: commands, their words and the variables before them.

Variables, arrays, functions, here-documents and scripts inside ``bash -c`` are followed as far as
they can be known; what is only known at run time stays as it is written and is not resolved.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from k31ctl.serve.read.found import Assigned, SourceWord, relocated
from k31ctl.serve.read.here_documents import only_prints
from k31ctl.serve.read.neighbours import Look, nothing_beside
from k31ctl.serve.read.shell_text import (
    MOST_WORDS,
    Command,
    TooDeepError,
    bounded,
    here,
    is_open,
    is_script,
    may_start,
    short,
)
from k31ctl.serve.read.shell_values import ShellValues

if TYPE_CHECKING:
    from tree_sitter import Node

_TALKERS: Final = frozenset(
    {"echo", "printf", "grep", "pgrep", "pkill", "killall", "ps", "which", "logger", "sed", "awk"}
)
_OF_THE_SHELL: Final = frozenset(
    {"activate", ".bashrc", ".bash_profile", ".profile", "bashrc", "profile", "conda.sh"}
)
_MOST_DEPTH: Final = 200
_MOST_CALLS: Final = 6
_MOST_NODES: Final = 400_000
_BRANCHES: Final = frozenset(
    {
        "if_statement",
        "elif_clause",
        "else_clause",
        "while_statement",
        "for_statement",
        "c_style_for_statement",
        "case_statement",
        "list",
    }
)
_VALUES: Final = frozenset(
    {
        "word",
        "string",
        "raw_string",
        "ansi_c_string",
        "concatenation",
        "simple_expansion",
        "expansion",
        "command_substitution",
        "process_substitution",
        "arithmetic_expansion",
        "number",
        "translated_string",
        "brace_expression",
    }
)


def shell_commands(
    text: str,
    *,
    environment: dict[str, Assigned] | None = None,
    variables: Mapping[str, tuple[SourceWord, ...]] | None = None,
    arguments: tuple[SourceWord, ...] | None = None,
    look: Look = nothing_beside,
    depth: int = 0,
) -> tuple[Command, ...]:
    """Return the simple commands of a script in the order in which they stand in it.

    ``arguments`` are those that it is run with, None where they are not known; ``look`` finds the
    files that it takes variables from. Raises TooDeepError where the script is nested or long
    beyond all use.
    """
    reader = _Reader(text, dict(environment or {}), depth, look)
    reader.variables.update(variables or {})
    reader.arguments = arguments
    reader.run()
    return tuple(reader.commands)


def _parsed(content: bytes) -> "Node":
    import tree_sitter  # noqa: PLC0415  only scripts need it
    import tree_sitter_bash  # noqa: PLC0415

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
    return parser.parse(content).root_node


class _Reader(ShellValues):
    """One pass over a script's syntax; the commands only grow."""

    def __init__(self, text: str, environment: dict[str, Assigned], depth: int, look: Look) -> None:
        super().__init__(text)
        self.depth, self.look = depth, look
        self.exported = environment
        self.variables = {name: (self._as_word(name, each),) for name, each in environment.items()}
        self.places: dict[str, Assigned] = {}
        self.functions: dict[str, Node] = {}
        self.called: set[str] = set()
        self.commands: list[Command] = []
        self.num_nodes = 0
        self.branches = 0
        self.calls = 0
        self.all_exported = False
        self.open_environment = False
        self._readers: Mapping[str, Callable[[Node, int], None]] = {
            "command": self._command,
            "variable_assignment": self._assign,
            "declaration_command": self._declare,
            "function_definition": self._define,
            "heredoc_body": self._inner_script,
        }

    def run(self) -> None:
        self._walk(_parsed(self.content), 0)
        for name in [n for n in self.functions if n not in self.called]:
            self._call(name, None)

    def _walk(self, node: "Node", level: int) -> None:
        self.num_nodes += 1
        if level > _MOST_DEPTH or self.num_nodes > _MOST_NODES:
            raise TooDeepError("nested deeper, or longer, than any launch script")
        read = self._readers.get(node.type)
        if read is not None:
            read(node, level)
        elif node.type == "heredoc_redirect":
            for child in () if only_prints(node, self.content) else node.children:
                if child.type == "heredoc_body":
                    self._walk(child, level + 1)
        else:
            self._children(node, level)

    def _children(self, node: "Node", level: int) -> None:
        branch = node.type in _BRANCHES
        if node.type == "for_statement":
            self._forget(node)
        for at, child in enumerate(node.children):
            inside = branch and (node.type != "list" or at > 0)
            self.branches += inside
            self._walk(child, level + 1)
            self.branches -= inside

    def _forget(self, node: "Node") -> None:
        name = node.child_by_field_name("variable")
        if name is not None:
            self.variables.pop(self._text(name), None)

    def _define(self, node: "Node", _: int) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        if name is not None and body is not None:
            self.functions[self._text(name)] = body

    def _assign(self, node: "Node", _: int = 0) -> None:
        name, value = self._assignment(node)
        if not name:
            return
        appends = any(child.type == "+=" for child in node.children)
        if self.branches and (appends or name in self.variables):
            before = self.variables.get(name, ())
            if appends or [w.text for w in before] != [w.text for w in value]:
                unknown = SourceWord(text=f"${name}", line=self._line(node), resolved=False)
                value = (*before, unknown) if appends else (unknown,)
        elif appends:
            value = self._appended(self.variables.get(name, ()), value, node)
        self.variables[name] = value
        self.places[name] = self._assigned(node, value)
        if self.all_exported or name in self.exported:
            self.exported[name] = self.places[name]

    def _appended(
        self, before: tuple[SourceWord, ...], value: tuple[SourceWord, ...], node: "Node"
    ) -> tuple[SourceWord, ...]:
        given = node.child_by_field_name("value")
        if given is not None and given.type == "array":
            return bounded((*before, *value))
        joined = "".join(w.text for w in (*before, *value))
        known = all(w.resolved for w in (*before, *value))
        return (SourceWord(text=short(joined), line=self._line(node), resolved=known),)

    def _assignment(self, node: "Node") -> tuple[str, tuple[SourceWord, ...]]:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or name.type != "variable_name":
            return "", ()
        if value is None:
            return self._text(name), (SourceWord(text="", line=self._line(node)),)
        if value.type == "array":
            parts = [child for child in value.named_children if child.type != "comment"]
            words = (w for child in parts for w in self._words(child))
            return self._text(name), bounded(words)
        return self._text(name), (self._word(value),)

    def _assigned(self, node: "Node", value: tuple[SourceWord, ...]) -> Assigned:
        start, end = self._span(node)
        return Assigned(
            value=" ".join(w.text for w in value),
            line=self._line(node),
            start=start,
            end=end,
            resolved=all(w.resolved for w in value),
        )

    def _declare(self, node: "Node", _level: int) -> None:
        keyword = self._text(node.children[0]) if node.children else ""
        options = [self._text(c) for c in node.children[1:] if c.type == "word"]
        exports = keyword == "export" or any("x" in o for o in options if o.startswith("-"))
        for child in node.named_children:
            if child.type == "variable_assignment":
                name, _ = self._assignment(child)
                self._assign(child)
            elif child.type == "variable_name":
                name = self._text(child)
            else:
                self.open_environment |= exports and is_open(self._text(child))
                continue
            if exports and name in self.places:
                self.exported[name] = self.places[name]

    def _command(self, node: "Node", level: int) -> None:
        own: dict[str, Assigned] = {}
        words: list[SourceWord] = []
        for child in node.children:
            if child.type == "variable_assignment":
                name, value = self._assignment(child)
                own[name] = self._assigned(child, value)
            elif child.type.startswith("heredoc"):
                self._walk(child, level + 1)
            else:
                words += self._parts(child)
            if len(words) > MOST_WORDS:
                raise TooDeepError("a command of more words than any launch")
        if not words:
            return
        first = words[0].text
        if first in self.functions and self.calls < _MOST_CALLS:
            self._call(first, tuple(words[1:]))
            return
        self._builtin(words)
        environment = {**self.exported, **own}
        command = Command(
            words=tuple(words), environment=environment, open_environment=self.open_environment
        )
        self.commands += self._with_inner(command)
        if len(self.commands) > MOST_WORDS:
            raise TooDeepError("more commands than any launch script")

    def _parts(self, child: "Node") -> tuple[SourceWord, ...]:
        """The words of one child of a command, none where it carries none."""
        if child.type == "command_name":
            return tuple(w for part in child.named_children for w in self._words(part))
        return self._words(child) if child.type in _VALUES or child.type == "regex" else ()

    def _builtin(self, words: Sequence[SourceWord]) -> None:
        """What ``set -a``, ``unset``, ``shift``, ``source`` and ``eval`` do to variables."""
        texts = [word.text for word in words]
        if texts[0] == "set" and ("-a" in texts or "allexport" in texts):
            self.all_exported = True
        for name in texts[1:] if texts[0] == "unset" else ():
            self.variables.pop(name, None)
            self.exported.pop(name, None)
        if texts[0] == "shift":
            self._shift(words[1:])
        self.open_environment |= texts[0] == "eval" and not all(w.resolved for w in words)
        if texts[0] in ("source", ".") and len(texts) > 1 and self.depth < _MOST_CALLS:
            self._take(words[1])

    def _shift(self, words: Sequence[SourceWord]) -> None:
        """Drop the first arguments; in a branch, or by how many is not known, all are unknown."""
        number = words[0].text if words else "1"
        if self.branches or not (number.isascii() and number.isdigit()):
            self.arguments = None
        elif self.arguments is not None:
            self.arguments = self.arguments[int(number[:4]) :]

    def _take(self, name: SourceWord) -> None:
        """Read a file that is sourced: its variables and commands, told where it is named."""
        file = self.look(name.text)
        if file is None:
            self.open_environment |= name.text.rpartition("/")[2] not in _OF_THE_SHELL
            return
        inner = _Reader(file.text, dict(self.exported), self.depth + 1, self.look)
        inner.variables.update(self.variables)
        inner.all_exported, inner.open_environment = self.all_exported, self.open_environment
        inner.run()
        changed = {n: v for n, v in inner.variables.items() if self.variables.get(n) is not v}
        self.variables |= {n: tuple(here(w, name.line) for w in v) for n, v in changed.items()}
        for places, own in ((inner.places, self.places), (inner.exported, self.exported)):
            fresh = {n: p for n, p in places.items() if own.get(n) is not p}
            own.update({n: replace(p, line=name.line, start=-1, end=-1) for n, p in fresh.items()})
        self.all_exported, self.open_environment = inner.all_exported, inner.open_environment
        self.commands += [
            replace(each, words=tuple(here(w, name.line) for w in each.words))
            for each in inner.commands
        ]

    def _with_inner(self, command: Command) -> Iterator[Command]:
        """The command, or where it only carries a script in one of its words, the script's."""
        if command.words[0].text.rpartition("/")[2] in _TALKERS:
            return
        inner: list[Command] = []
        for word in command.words[1:]:
            if self.depth < _MOST_CALLS and is_script(word.text):
                nested = shell_commands(
                    word.text,
                    environment=command.environment,
                    look=self.look,
                    depth=self.depth + 1,
                )
                inner += [self._outer(each, word, command) for each in nested]
        yield from inner or [command]

    def _outer(self, inner: Command, word: SourceWord, around: Command) -> Command:
        if word.start < 0:
            words = tuple(here(w, word.line) for w in inner.words)
        else:
            words = relocated(inner.words, word.text, self.text, start=word.start, end=word.end)
        before = around.words[: around.words.index(word)]
        more = around.open_environment or inner.open_environment
        return Command(
            words=(*before, *words), environment=inner.environment, open_environment=more
        )

    def _inner_script(self, node: "Node", _: int) -> None:
        text = self._text(node)
        if self.depth >= _MOST_CALLS or not may_start(text):
            return
        start, end = self._span(node)
        for each in shell_commands(
            text, environment=self.exported, variables=self.variables, depth=self.depth + 1
        ):
            words = relocated(each.words, text, self.text, start=start, end=end)
            more = self.open_environment or each.open_environment
            self.commands.append(
                Command(words=words, environment=each.environment, open_environment=more)
            )

    def _call(self, name: str, arguments: tuple[SourceWord, ...] | None) -> None:
        """Read the body of a function with the arguments of a call, None where nobody calls it."""
        self.called.add(name)
        before, self.arguments = self.arguments, arguments
        self.calls += 1
        self._walk(self.functions[name], 1)
        self.calls -= 1
        self.arguments = before
