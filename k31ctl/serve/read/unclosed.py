"""What a shell script opens and never closes: quotes, substitutions, lists, here-documents."""

import re
from typing import Final

from k31ctl.errors import InputError
from k31ctl.serve.read.source import Source
from k31ctl.values import frozen

_HERE: Final = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]*)'|\"([^\"\n]*)\"|([^\s;&|<>()'\"`]+))")
_ARRAY: Final = re.compile(r"[A-Za-z_]\w*(?:\[[^\]\n]*\])?\+?=\($")
_PLAIN: Final = re.compile(r"[^\\'\"`$#()<{}\n]+")
_PLAIN_LINES: Final = re.compile(r"[^\\'\"`$#()<{}]+")
_COMMENT: Final = re.compile(r"#[^\n]*")
_COMMENTS: Final = re.compile(r"#[^\n]*(?:\n[ \t]*#[^\n]*)*")
_MOST_DEPTH: Final = 1000
_PROSE: Final = (".md", ".rst", ".txt", ".html", ".json")
_LONGEST_NAME: Final = 80
_ENDS: Final = {"(": ")", "((": "))", "array": ")", "{": "}", "`": "`", '"': '"'}
_NAMES: Final = {
    "'": "a single quote",
    '"': "a double quote",
    "`": "a backtick",
    "(": "$(",
    "((": "((",
    "{": "${",
    "array": "a list in parentheses",
}


@frozen
class Unclosed:
    """What is open at the end of a script, and the offset where it begins."""

    what: str
    start: int


def require_closed(source: Source, *, text: str | None = None, start: int = 0) -> None:
    """InputError where a script, or one that begins at an offset of a file, leaves something open.

    Bash refuses such a script, and what it holds cannot be told for certain.
    """
    found = unclosed(source.text if text is None else text)
    if found is None:
        return
    inner = 0 if text is None else text.count("\n", 0, found.start)
    if text is None and source.name.endswith(_PROSE):
        raise InputError(
            "a text, not a launch file", where=source.name, remedy="name a script or a manifest"
        )
    line = source.line(found.start if text is None else start) + inner
    raise InputError(
        found.what, where=f"{source.name}:{line}", remedy="close it; bash refuses the script"
    )


def unclosed(text: str) -> Unclosed | None:
    """Return what a script leaves open at its end, None where everything is closed."""
    return _Scan(text).run()


class _Scan:
    """One pass over a script with a stack of what is open."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.open: list[tuple[str, int]] = []
        self.parentheses: list[int] = [0]
        self.here: list[tuple[str, bool, int]] = []

    def run(self) -> Unclosed | None:
        while self.at < len(self.text):
            if max(len(self.open), self.parentheses[-1]) > _MOST_DEPTH:
                return None  # whoever reads what it holds refuses it as too deep
            missing = self._step()
            if missing is not None:
                return missing
        if self.open:
            kind, start = self.open[-1]
            return Unclosed(what=f"{_NAMES[kind]} is never closed", start=start)
        if self.here:
            return self._never_ends(*self.here[0])
        return None

    def _never_ends(self, word: str, _strips: bool, start: int) -> Unclosed:
        return Unclosed(what=f"the here-document up to {word[:40]} never ends", start=start)

    def _top(self) -> str:
        return self.open[-1][0] if self.open else ""

    def _push(self, kind: str, length: int) -> None:
        self.open.append((kind, self.at))
        self.parentheses.append(0)
        self.at += length

    def _pop(self, length: int) -> None:
        self.open.pop()
        self.parentheses.pop()
        self.at += length

    def _step(self) -> Unclosed | None:
        plain = (_PLAIN if self.here else _PLAIN_LINES).match(self.text, self.at)
        if plain is not None:
            self.at = plain.end()
            return None
        mark, top = self.text[self.at], self._top()
        if mark == "\\":
            self.at += 2
        elif mark == "\n" and self.here and top not in ('"', "{"):
            return self._bodies()
        elif top == '"':
            self._in_double(mark)
        elif mark == "'" and top != "((":
            return self._single(self.at, escapes=False)
        else:
            return self._outside(mark, top)
        return None

    def _in_double(self, mark: str) -> None:
        if mark == '"':
            self._pop(1)
        elif not self._substitution(mark):
            self.at += 1

    def _substitution(self, mark: str) -> bool:
        """Open what may stand in double quotes too."""
        if mark == "`":
            if self._top() == "`":
                self._pop(1)
            else:
                self._push("`", 1)
            return True
        for text, kind in (("$((", "(("), ("$(", "("), ("${", "{")):
            if mark == "$" and self.text.startswith(text, self.at):
                self._push(kind, len(text))
                return True
        return False

    def _outside(self, mark: str, top: str) -> Unclosed | None:
        if mark == "$" and self.text.startswith("$'", self.at) and top != "((":
            return self._single(self.at + 1, escapes=True)
        if mark == "#" and self._begins_word() and top not in ("{", "(("):
            comment = (_COMMENT if self.here else _COMMENTS).match(self.text, self.at)
            assert comment is not None
            self.at = comment.end()
        elif mark == '"':
            self._push('"', 1)
        elif self._substitution(mark):
            pass
        elif self._closes(mark, top):
            self._pop(len(_ENDS[top]))
        elif mark == "<" and top not in ("((", "{") and self.text.startswith("<<", self.at):
            self._redirected()
        elif mark in "()":
            self._parenthesis(mark)
        else:
            self.at += 1
        return None

    def _closes(self, mark: str, top: str) -> bool:
        end = _ENDS.get(top, "")
        return (
            mark == end[:1]
            and self.text.startswith(end, self.at)
            and (top == "{" or self.parentheses[-1] == 0)
        )

    def _parenthesis(self, mark: str) -> None:
        if mark == ")":
            self.parentheses[-1] = max(0, self.parentheses[-1] - 1)
        elif self._begins_list():
            self._push("array", 1)
            return
        elif self.text.startswith("((", self.at) and self._begins_word() and not self._top():
            self._push("((", 2)
            return
        else:
            self.parentheses[-1] += 1
        self.at += 1

    def _begins_list(self) -> bool:
        before = self.text[max(0, self.at - 2) : self.at]
        if before[1:] != "=" or not (before[0].isalnum() or before[0] in "_+]"):
            return False
        return _ARRAY.search(self.text, max(0, self.at - _LONGEST_NAME), self.at + 1) is not None

    def _begins_word(self) -> bool:
        return self.at == 0 or self.text[self.at - 1] in " \t\n;&|()`"

    def _single(self, start: int, *, escapes: bool) -> Unclosed | None:
        """Pass a string in single quotes."""
        at = start + 1
        while at < len(self.text) and self.text[at] != "'":
            at += 2 if escapes and self.text[at] == "\\" else 1
        if at >= len(self.text):
            return Unclosed(what="a single quote is never closed", start=start)
        self.at = at + 1
        return None

    def _redirected(self) -> None:
        if self.text.startswith("<<<", self.at):
            self.at += 3
            return
        found = _HERE.match(self.text, self.at)
        if found is None:
            self.at += 2
            return
        word = next(part for part in found.groups()[1:] if part is not None).replace("\\", "")
        self.here.append((word, bool(found[1]), self.at))
        self.at = found.end()

    def _bodies(self) -> Unclosed | None:
        """Pass the bodies of the here-documents whose line ends here."""
        at = self.at + 1
        for word, strips, start in self.here:
            while True:
                if at >= len(self.text):
                    return self._never_ends(word, strips, start)
                end = self.text.find("\n", at)
                end = len(self.text) if end < 0 else end
                line = self.text[at:end].rstrip("\r")
                at = end + 1
                if (line.lstrip("\t") if strips else line) == word:
                    break
        self.here.clear()
        self.at = min(at - 1, len(self.text))
        return None
