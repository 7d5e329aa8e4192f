"""Requests and answers as evidence: shortened, and without anything that opens a door."""

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

HIDDEN: Final = "[hidden]"
_MOST_TEXT: Final = 400
_MOST_EVENTS: Final = 20
_MOST_ITEMS: Final = 40
_MOST_DEPTH: Final = 16
_SHOWN_HEADERS: Final = ("content-type", "retry-after", "server")
_KEY_LIKE: Final = re.compile(
    r"\b(?:sk|rk|pk|key|hf|ghp)[-_][A-Za-z0-9_*.-]{6,}|Bearer\s+[^\s\"']+"
)
_DATA_URL: Final = re.compile(r"data:([\w/+.-]+);base64,[A-Za-z0-9+/=]+")


class Redaction:
    """Hides one key wherever it stands, in whatever way JSON spells it, and what looks like one."""

    def __init__(self, token: str | None) -> None:
        once = json.dumps(token or "")[1:-1]
        spelt = {token or "", once, json.dumps(once)[1:-1]}
        self._secrets = sorted((text for text in spelt if text), key=len, reverse=True)

    def text(self, text: str) -> str:
        """Text without secrets, as long as it was."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return _KEY_LIKE.sub(HIDDEN, text)

    def short(self, text: str) -> str:
        """Text without secrets and images, cut where it is long."""
        hidden = self.text(_DATA_URL.sub(r"data:\1;base64,...", text))
        if len(hidden) <= _MOST_TEXT:
            return hidden
        return f"{hidden[:_MOST_TEXT]}... ({len(hidden):,} characters)"

    def document(self, value: Any, depth: int = 0) -> Any:
        """A JSON value of the same form, with short texts, the first items, and so deep at most."""
        if depth > _MOST_DEPTH:
            return "..."
        match value:
            case str():
                return self.short(value)
            case Mapping():
                items = list(value.items())[:_MOST_ITEMS]
                return {
                    self.short(str(key)): self.document(entry, depth + 1) for key, entry in items
                }
            case list() | tuple():
                shown = [self.document(entry, depth + 1) for entry in value[:_MOST_ITEMS]]
                left = len(value) - len(shown)
                return [*shown, f"... ({left:,} more)"] if left > 0 else shown
            case float() if not isfinite(value):
                return str(value)
            case _:
                return value

    def body(self, body: bytes) -> Any:
        """A body as JSON where it is some, else as text."""
        try:
            return self.document(json.loads(body))
        except (ValueError, RecursionError):
            return self.short(body.decode("utf-8", "backslashreplace"))

    def events(self, events: Sequence[bytes]) -> list[str]:
        """The first and the last events of a stream."""
        texts = [self.short(event.decode("utf-8", "backslashreplace")) for event in events]
        if len(texts) <= _MOST_EVENTS:
            return texts
        half = _MOST_EVENTS // 2
        left_out = f"... ({len(texts) - 2 * half:,} events)"
        return [*texts[:half], left_out, *texts[-half:]]

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """The few headers that tell something; cookies and the like are never shown."""
        return {
            name: self.short(value)
            for name, value in headers.items()
            if name in _SHOWN_HEADERS or "warning" in name
        }
