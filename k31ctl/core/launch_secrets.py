"""Keys and passwords that stand in a launch, by the names before them, so that none is shown."""

import re
from collections.abc import Iterable
from typing import Final

HIDDEN: Final = "***"
_NAME: Final = r"[\w-]{0,60}?(?:api[_-]?key|access[_-]?key|token|passw(?:or)?d|secret)"
# Shorter ones are EMPTY, dummy and the like; a variable is no secret itself.
_VALUE: Final = r"[\"']?([^\s\"'$,]{8,})"
_STATED: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"--?{_NAME}[\"',]{{0,2}}(?:=|\s+(?:-\s+)?){_VALUE}",
        rf"\b{_NAME}[\"']?\s*[=:]\s*{_VALUE}",
        rf"\bname:\s*[\"']?{_NAME}[\"']?\s+value:\s*{_VALUE}",
    )
)


def stated_secrets(text: str) -> frozenset[str]:
    """Return the values of a script, a manifest or a command that are named as secrets."""
    return frozenset(found[1] for pattern in _STATED for found in pattern.finditer(text))


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return a text with each of these hidden."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
