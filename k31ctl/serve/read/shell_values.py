"""Values in shell scripts: words as the shell would make them, as far as they can be known."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from k31ctl.serve.read.found import Assigned, SourceWord
from k31ctl.serve.read.shell_text import is_array, is_open, open_parts, short, unescaped, unquoted

if TYPE_CHECKING:
    from tree_sitter import Node

_MANIFEST_NAME: Final = re.compile(r"\$\([A-Z_][A-Z0-9_]*\)")
_BARE_QUOTE: Final = re.compile(r'(?<!\\)"')
_UNKNOWN: Final = ("command_substitution", "process_substitution", "arithmetic_expansion")


def _default_of(body: str) -> tuple[str, str | None, bool]:
    """The name in an expansion, its default if it has one, and whether empty counts as unset."""
    for operator in (":-", "-", ":=", "="):
        head, found, tail = body.partition(operator)
        if found and head.isidentifier():
            return head, tail, operator.startswith(":")
    return body, None, False


def _default_value(text: str, *, quoted: bool) -> str:
    """A default without its quotes and backslashes, as the shell would make it."""
    if quoted:
        return unquoted(_BARE_QUOTE.sub("", text))
    if text[:1] == text[-1:] == "'":
        return text[1:-1]
    if text[:1] == text[-1:] == '"':
        return unquoted(text[1:-1])
    return unescaped(text)


class ShellValues:
    """What the parts of a script stand for, with the variables and arguments known so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.content = text.encode("utf-8", "surrogatepass")
        self.is_ascii = len(text) == len(self.content)
        self.variables: dict[str, tuple[SourceWord, ...]] = {}
        self.arguments: tuple[SourceWord, ...] | None = None

    def _words(self, node: "Node") -> tuple[SourceWord, ...]:
        """The words that one part of a command stands for: arrays and arguments are several."""
        name = self._whole_name(node)
        if name in ("@", "*") and self.arguments is not None:
            return self.arguments
        found = self.variables.get(name)
        if name and found is not None:
            if is_array(self._text(node)):
                return found
            if node.type != "string" and len(found) == 1:
                return self._split(found[0])
            return (replace(found[0], text=found[0].text, certain=False),) if found else ()
        return (self._word(node),)

    def _split(self, word: SourceWord) -> tuple[SourceWord, ...]:
        """An unquoted variable as the words that the shell splits it into."""
        if not word.resolved:
            return tuple(
                SourceWord(text=part, line=word.line, resolved=not is_open(part))
                for part in open_parts(word.text)
            )
        parts = word.text.split()
        if len(parts) == 1:
            return (replace(word, certain=False),)
        return tuple(SourceWord(text=part, line=word.line) for part in parts)

    def _whole_name(self, node: "Node") -> str:
        """The name of the variable that a part is nothing but the value of, else nothing."""
        inner = node
        if node.type == "string":
            parts = node.named_children
            if len(parts) != 1 or parts[0].type not in ("simple_expansion", "expansion"):
                return ""
            whole = self._text(node).strip('"')
            if whole != self._text(parts[0]):
                return ""
            inner = parts[0]
        if inner.type not in ("simple_expansion", "expansion"):
            return ""
        text = self._text(inner)
        for ending in ("[@]", "[*]"):
            if text.startswith("${") and text.endswith(f"{ending}}}"):
                return text[2 : -len(ending) - 1]
        name = text.strip("${}") if text.startswith("${") else text[1:]
        return name if name.isidentifier() or name in ("@", "*") or name.isdigit() else ""

    def _word(self, node: "Node") -> SourceWord:
        text, resolved = self._value(node)
        start, end = self._span(node)
        certain = resolved and not self._has_expansion(node)
        return SourceWord(
            text=text,
            line=self._line(node),
            start=start,
            end=end,
            certain=certain,
            resolved=resolved,
        )

    def _has_expansion(self, node: "Node") -> bool:
        return "$" in self._text(node) and node.type != "raw_string"

    def _value(self, node: "Node", *, quoted: bool = False) -> tuple[str, bool]:
        text, kind = self._text(node), node.type
        if kind in ("string", "translated_string"):
            return self._quoted(node)
        if kind in ("simple_expansion", "expansion"):
            return self._expanded(node, quoted=quoted)
        if kind == "concatenation":
            parts = [self._value(child) for child in node.children]
            return short("".join(p for p, _ in parts)), all(known for _, known in parts)
        if kind == "command_substitution" and (given := self._of_manifest(text)):
            return given, True
        plain = {"raw_string": text[1:-1], "ansi_c_string": text[2:-1]}
        if kind in plain:
            return plain[kind], kind == "raw_string" or "\\" not in text
        return (text, False) if kind in _UNKNOWN else (unescaped(text), True)

    def _of_manifest(self, text: str) -> str:
        """The value of ``$(NAME)``, which Kubernetes fills in before the shell sees it."""
        if not _MANIFEST_NAME.fullmatch(text):
            return ""
        value = self.variables.get(text[2:-1], ())
        return value[0].text if len(value) == 1 and value[0].resolved else ""

    def _quoted(self, node: "Node") -> tuple[str, bool]:
        """The value of a string in double quotes, with what is known put in."""
        start, end = node.start_byte + 1, node.end_byte - 1
        out, known, at = [], True, start
        for child in node.named_children:
            if child.type == "string_content":
                continue
            out.append(unquoted(self._bytes(at, child.start_byte)))
            text, is_known = self._value(child, quoted=True)
            out.append(text)
            known &= is_known
            at = child.end_byte
        out.append(unquoted(self._bytes(at, end)))
        return short("".join(out)), known

    def _expanded(self, node: "Node", *, quoted: bool) -> tuple[str, bool]:
        text = self._text(node)
        body = text[2:-1] if text.startswith("${") else text[1:]
        name, default, if_empty = _default_of(body)
        if name.isdigit() and self.arguments is not None and name != "0":
            number = int(name[:4])
            if number <= len(self.arguments):
                return self.arguments[number - 1].text, self.arguments[number - 1].resolved
            return "", True
        value = self.variables.get(name)
        if value and not (if_empty and [w.text for w in value] == [""]):
            return short(" ".join(w.text for w in value)), all(w.resolved for w in value)
        if default and "$" not in default:
            return _default_value(default, quoted=quoted), True
        return text, False  # an empty default stands for what whoever starts the script sets

    def _as_word(self, name: str, each: Assigned) -> SourceWord:
        """A variable's value as a word, its own name where nothing of the value is known."""
        text = each.value if each.value or each.resolved else f"${name}"
        return SourceWord(text=text, line=each.line, resolved=each.resolved)

    def _bytes(self, start: int, end: int) -> str:
        return self.content[start:end].decode("utf-8", "replace")

    def _text(self, node: "Node") -> str:
        return self._bytes(node.start_byte, node.end_byte)

    def _line(self, node: "Node") -> int:
        return int(node.start_point[0]) + 1

    def _span(self, node: "Node") -> tuple[int, int]:
        if self.is_ascii:
            return node.start_byte, node.end_byte
        start = len(self._bytes(0, node.start_byte))
        return start, start + len(self._text(node))
