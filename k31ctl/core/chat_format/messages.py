"""The messages of a request as values, checked."""

from collections.abc import Mapping
from typing import Any, Final

from k31ctl.core.chat_format import json_fields as fields
from k31ctl.core.chat_format.tool_arguments import Arguments, read_arguments
from k31ctl.values import frozen

_ROLES: Final = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}
_IMAGES: Final = ("image", "image_url")


@frozen
class ImagePart:
    """An image within a message's content, by its address, and the field that holds it."""

    url: str
    where: str


@frozen
class ToolCall:
    """A call that the assistant made."""

    id: str | None
    name: str
    arguments: Arguments


@frozen
class Message:
    """One message; fields that its role does not have are empty.

    ``tool`` is the name that a tool's result gives for itself, and ``call_id`` the call it answers.
    """

    role: str
    where: str
    name: str = ""
    content: tuple[str | ImagePart, ...] = ()
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tools: Any = None
    tool: str | None = None
    call_id: str | None = None

    @property
    def lacks_reasoning(self) -> bool:
        """Whether this is an answer whose reasoning the client has dropped."""
        return self.role == "assistant" and not self.reasoning.strip()


def read_messages(value: Any) -> tuple[Message, ...]:
    """Return the messages of a request.

    Raises ``InputError``, which names the field.
    """
    messages = fields.listed(value, "messages")
    if not messages:
        raise fields.bad_field("messages", "is empty or absent", "send at least one message")
    return tuple(_message(item, f"messages[{index}]") for index, item in enumerate(messages))


def _message(value: Any, where: str) -> Message:
    given = fields.mapping(value, where)
    role = _ROLES.get(fields.text(given.get("role"), f"{where}.role"))
    if role is None:
        known = ", ".join(_ROLES)
        raise fields.bad_field(f"{where}.role", f"is {given['role']!r}", f"use one of {known}")
    calls = fields.listed(given.get("tool_calls"), f"{where}.tool_calls")
    tool = given.get("tool") or given.get("name")
    is_tool = role == "tool"
    return Message(
        role=role,
        where=where,
        name=fields.optional_text(given.get("name"), f"{where}.name"),
        content=_content(given.get("content"), f"{where}.content"),
        reasoning=_reasoning(given, where),
        tool_calls=tuple(
            _tool_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)
        ),
        tools=(role == "system" and fields.listed(given.get("tools"), f"{where}.tools")) or None,
        tool=fields.text(tool, f"{where}.name") if is_tool and tool else None,
        call_id=_call_id(given) if is_tool else None,
    )


def _content(value: Any, where: str) -> tuple[str | ImagePart, ...]:
    if value is None or isinstance(value, str):
        return (value,) if value else ()
    parts = fields.listed(value, where)
    return tuple(_part(part, f"{where}[{index}]") for index, part in enumerate(parts))


def _part(value: Any, where: str) -> str | ImagePart:
    part = fields.mapping(value, where)
    kind = part.get("type")
    if kind in _IMAGES:
        image = part.get("image_url", part.get("image"))
        if isinstance(image, dict):
            image = image.get("url")
        return ImagePart(url=fields.optional_text(image, f"{where}.image_url"), where=where)
    if not isinstance(part.get("text"), str):
        remedy = "send parts of type text or image_url; there is no audio and no video"
        raise fields.bad_field(where, f"of type {fields.shown(kind)} has no text", remedy)
    return fields.text(part["text"], where)


def _reasoning(given: Mapping[str, Any], where: str) -> str:
    for name in ("reasoning_content", "reasoning"):
        if given.get(name):
            return fields.text(given[name], f"{where}.{name}")
    return ""


def _tool_call(value: Any, where: str) -> ToolCall:
    call = fields.mapping(value, where)
    function = fields.mapping(call.get("function", call), f"{where}.function")
    name = fields.text(function.get("name"), f"{where}.function.name")
    return ToolCall(
        id=None if call.get("id") is None else str(call["id"]),
        name=name,
        arguments=read_arguments(function.get("arguments"), f"{where}.function.arguments"),
    )


def _call_id(given: Mapping[str, Any]) -> str | None:
    found = given.get("tool_call_id", given.get("id"))
    return None if found is None else str(found)
