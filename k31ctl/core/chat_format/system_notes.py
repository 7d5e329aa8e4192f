"""Messages that the system writes around a conversation; their words are part of the format.

Source: Kimi K3's encoder as released; the words must not be changed.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from k31ctl.core.chat_format.segments import Segment, message, plain

EFFORTS: Final = ("low", "high", "max")
DEFAULT_EFFORT: Final = "max"
_FENCE: Final = "```"
_RAW_JSON: Final = (
    "Your response must be raw JSON data without markdown code blocks (```json) or any "
    "additional formatting."
)


def tool_declaration(tools: Any) -> Iterator[Segment]:
    """The tools of a request, which lead the prompt."""
    head = "# Tools\nHere are the available tools, described in JSONSchema."
    return _note("tool-declare", f"{head}\n\n{_fenced(tools)}")


def further_tools(tools: Any) -> Iterator[Segment]:
    """Tools that come with a system message, in its place."""
    head = (
        "## New Tools Available\n"
        "The system dynamically extends the toolset via lazy-loading.\n"
        "You have access to all existing and extended tools.\n"
        "Here are the specs for the extended tools."
    )
    return _note("tool-declare", f"{head}\n\n{_fenced(tools)}")


def thinking_effort(effort: str) -> Iterator[Segment]:
    """How much to think."""
    head = (
        "`thinking_effort` guides on how much to think in your thinking channel (not including "
        "the response channel), supported values include `low`, `medium`, `high`, and `max`."
    )
    return _note(
        "thinking-effort", f"{head}\nNow the system is invoked with `thinking_effort={effort}`."
    )


def tool_choice(choice: str) -> Iterator[Segment]:
    """Whether tools must, or must not, be called; nothing where the model may choose."""
    orders = {
        "required": "You MUST call tools in the next message.",
        "none": "You MUST NOT call any tools in the next message.",
    }
    if choice in orders:
        head = f"The system is invoked with `tool_choice={choice}`."
        yield from _note("tool-choice", f"{head}\n{orders[choice]}")


def response_format(kind: str, schema: Any) -> Iterator[Segment]:
    """What the answer must look like; nothing for plain text."""
    head = f"The system is invoked with `response_format={kind}`.\n{_RAW_JSON}"
    if kind == "json_object":
        yield from _note("response-format", head)
    elif kind == "json_schema":
        matching = f"The JSON data must match the following schema:\n{_fenced(schema)}"
        yield from _note("response-format", f"{head}\n{matching}")


def _note(kind: str, body: str) -> Iterator[Segment]:
    return message((("role", "system"), ("type", kind)), plain(body))


def _fenced(value: Any) -> str:
    compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return f"{_FENCE}json\n{compact}\n{_FENCE}"
