"""One endpoint that is checked: how to reach it, what it serves, what every question carries."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from k31ctl.bench.check import Line, TokenCounter
from k31ctl.bench.conformance.redaction import Redaction
from k31ctl.bench.conformance.reply import Api, Reply
from k31ctl.bench.conformance.verdicts import Evidence
from k31ctl.bench.events import Server
from k31ctl.values import frozen


@frozen
class Settings:
    """What every question is put with.

    ``common`` are fields that the endpoint takes, such as a temperature of 0; ``answer_tokens``
    is the room for an answer with its reasoning; ``context`` is the longest context, None where
    it is not known.
    """

    common: Mapping[str, Any]
    answer_tokens: int
    context: int | None


class Target:
    """One endpoint, and answers that several checks look at."""

    def __init__(
        self, line: Line, api: Api, server: Server, settings: Settings, counter: TokenCounter
    ) -> None:
        self.line, self.api, self.server, self.settings = line, api, server, settings
        self.counter = counter
        self.redaction = Redaction(line.endpoint.token)
        self.once: dict[str, tuple[Reply, Evidence]] = {}
        self.counts: dict[str, int | None] = {}
        self.is_gone = False


def with_key(line: Line, token: str) -> Line:
    """The same line with another key."""
    headers = tuple(
        (name, token if value == line.endpoint.token else value)
        for name, value in line.endpoint.headers
    )
    other = Line(replace(line.endpoint, token=token, headers=headers), line.context)
    other.address = line.address
    return other
