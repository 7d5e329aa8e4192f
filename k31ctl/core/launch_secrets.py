"""Keys and passwords that stand in a launch, by the names before them, so that none is shown."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

HIDDEN: Final = "***"
_NAME: Final = r"[\w-]{0,60}?(?:api[_-]?key|access[_-]?key|token|passw(?:or)?d|secret)"
# A word as a shell reads it: quoted parts and bare ones, together.
_VALUE: Final = r"""((?:'[^'\n]*'|"(?:\\.|[^"\\\n])*"|\\.|[^\s"'\\])+)"""
_STATED: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?<![\w-])--?{_NAME}[\"']?(?:=|,?\s+(?:-\s+)?|,){_VALUE}",
        rf"\b{_NAME}[\"']?(?:=|:(?![?+=-])[ \t]*|[ \t]+=[ \t]+){_VALUE}",
        rf"\$\{{{_NAME}:?[-=]([^}}\s]+)\}}",
        rf"\bname:\s*[\"']?{_NAME}[\"']?\s+value:\s*{_VALUE}",
        r"\b(?:bearer|authorization:[ \t]*basic)[ \t]+([^\s\"']+)",
        r"://[^\s/:@]{0,200}:([^\s/@]{1,200})@",
    )
)
_FLAG: Final = re.compile(rf"--?{_NAME}", re.IGNORECASE)
_SET: Final = re.compile(rf"(?:--?)?{_NAME}=(.+)", re.IGNORECASE | re.DOTALL)
# The flag of which a server takes several values.
_SEVERAL: Final = "--api-key"
_PART: Final = re.compile(r"""'([^']*)'|"((?:\\.|[^"\\])*)"|([^"']+)""")
_OPEN: Final = re.compile(r"\$(?:\w+|\{[^}]*\}?|\(.*)|\{\{.*|[\W_]*", re.DOTALL)
_DUMMIES: Final = frozenset({"empty", "dummy", "none", "null", "true", "false"})
_JSON_TEXT: Final = re.compile(r'"(?:[^"\\]|\\.)*+"(:?)')
# Shorter ones are hidden as whole words alone, since they are parts of others.
_LONG: Final = 8


def stated_secrets(text: str) -> frozenset[str]:
    """Return the values of a script or a manifest that are named as secrets."""
    return _closed(
        form for pattern in _STATED for found in pattern.finditer(text) for form in _forms(found[1])
    )


def secrets_of_words(words: Sequence[str]) -> frozenset[str]:
    """Return the values of a command, which is read into words, that are named as secrets."""
    values: list[str] = []
    for at, word in enumerate(words):
        if found := _SET.fullmatch(word):
            values.append(found[1])
        elif _FLAG.fullmatch(word):
            following = words[at + 1 :] if word == _SEVERAL else words[at + 1 : at + 2]
            for value in following:
                if value.startswith("-"):
                    break
                values.append(value)
        else:
            values += stated_secrets(word)
    return _closed(values)


def document_without(text: str, secrets: Iterable[str]) -> str:
    """Return a JSON text with each of these hidden in its values: names stay, and it stays JSON."""
    hidden = tuple(secrets)

    def shown(found: re.Match[str]) -> str:
        is_name = found[1] == ":"
        return found[0] if is_name else json.dumps(without_secrets(json.loads(found[0]), hidden))

    return _JSON_TEXT.sub(shown, text) if hidden else text


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text with each of these hidden, also as a shell quotes it."""
    for secret in sorted(secrets, key=len, reverse=True):
        for form in dict.fromkeys((secret.replace("'", "'\"'\"'"), secret)):
            pattern = re.escape(form)
            if len(form) < _LONG:
                pattern = rf"(?<![\w-]){pattern}(?![\w-])"
            text = re.sub(pattern, HIDDEN, text)
    return text


def _forms(word: str) -> tuple[str, ...]:
    """A word as it is written, as it is read, and its first part, where text behind is not its."""
    parts = ["".join(found) for found in _PART.findall(word)]
    forms = (word, "".join(parts), parts[0] if parts else "")
    return (*forms, *(form.rstrip(",;]})") for form in forms))


def _closed(values: Iterable[str]) -> frozenset[str]:
    """Those that are values: a variable is no secret itself, nor is EMPTY or punctuation."""
    return frozenset(
        value
        for value in values
        if value.casefold() not in _DUMMIES and _OPEN.fullmatch(value) is None
    )
