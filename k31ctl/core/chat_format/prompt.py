"""The prompt of a chat request: its pieces in order, up to where the model goes on.

Tools and effort lead, since they belong to the session; what belongs to one request trails, so
that the part that repeats stays the same.
Source: Kimi K3's encoder; K3.1 Pro is assumed to use the same, as no public file says otherwise.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from k31ctl.core.chat_format import json_fields as fields
from k31ctl.core.chat_format import system_notes as notes
from k31ctl.core.chat_format.messages import ImagePart, Message, read_messages
from k31ctl.core.chat_format.segments import (
    Segment,
    close_tag,
    element,
    media_block,
    message,
    open_tag,
    plain,
)
from k31ctl.core.chat_format.tool_arguments import argument_segments
from k31ctl.core.chat_format.tool_results import in_call_order
from k31ctl.values import frozen

_FORMATS: Final = ("text", "json_object", "json_schema")
_CHOICES: Final = ("auto", "none", "required")

ImageSize = tuple[int, int]


@frozen
class ChatRequest:
    """What of a request decides its prompt.

    ``effort`` is None where thinking is off. ``tool_choice`` is a word or, for a named function,
    the function's name after ``named:``; it writes nothing into the prompt.
    """

    messages: tuple[Message, ...]
    tools: tuple[Any, ...]
    effort: str | None
    tool_choice: str | None
    response_format: str
    schema: Any

    @property
    def is_thinking(self) -> bool:
        """Whether the model reasons first."""
        return self.effort is not None

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The images in the order of their places in the prompt."""
        ordered = (m for m, _ in in_call_order(self.messages) if m.tools is None)
        return tuple(part for m in ordered for part in m.content if isinstance(part, ImagePart))


def read_chat_request(body: Mapping[str, Any]) -> ChatRequest:
    """Return what of an OpenAI request's body decides the prompt.

    Raises ``InputError``, which names the field.
    """
    response_format, schema = _response_format(body.get("response_format"))
    tools = fields.listed(body.get("tools"), "tools")
    for index, tool in enumerate(tools):
        given = fields.mapping(tool, f"tools[{index}]")
        function = fields.mapping(given.get("function"), f"tools[{index}].function")
        fields.text(function.get("name"), f"tools[{index}].function.name")
    return ChatRequest(
        messages=read_messages(body.get("messages")),
        tools=tuple(tools),
        effort=_effort(body),
        tool_choice=_tool_choice(body.get("tool_choice")),
        response_format=response_format,
        schema=schema,
    )


def prompt_segments(
    request: ChatRequest, *, image_sizes: Sequence[ImageSize] = ()
) -> tuple[Segment, ...]:
    """Return the pieces of the prompt, with one pad for each image of the given width, height."""
    if len(image_sizes) != len(request.images):
        raise ValueError(f"{len(image_sizes)} sizes for {len(request.images)} images")
    return tuple(_prompt(request, iter(image_sizes)))


def last_opener(request: ChatRequest) -> tuple[Segment, ...]:
    """The tag that the prompt ends with; Moonshot does not count it among the prompt's tokens."""
    return tuple(open_tag("think" if request.is_thinking else "response"))


def _prompt(request: ChatRequest, sizes: Iterator[ImageSize]) -> Iterator[Segment]:
    if request.tools:
        yield from notes.tool_declaration(request.tools)
    if request.effort is not None:
        yield from notes.thinking_effort(request.effort)
    for one, number in in_call_order(request.messages):
        yield from _message(one, number, sizes, is_thinking=request.is_thinking)
    if request.tool_choice is not None:
        yield from notes.tool_choice(request.tool_choice)
    yield from notes.response_format(request.response_format, request.schema)
    yield from open_tag("message", (("role", "assistant"),))
    yield from last_opener(request)


def _message(
    one: Message, number: int, sizes: Iterator[ImageSize], *, is_thinking: bool
) -> Iterator[Segment]:
    name = (("name", one.name),) if one.name else ()
    body = _content(one, sizes)
    if one.role == "tool":
        attributes = (("role", "tool"), ("tool", one.tool or ""), ("index", str(number)))
        return message(attributes, body)
    if one.role == "system" and one.tools:
        return notes.further_tools(one.tools)
    if one.role == "assistant":
        body = _answer(one, body, is_thinking=is_thinking)
    return message((("role", one.role), *name), body)


def _answer(one: Message, body: Iterator[Segment], *, is_thinking: bool) -> Iterator[Segment]:
    """The channels of an earlier answer; its reasoning stays, however old it is."""
    if is_thinking:
        yield from element("think", plain(one.reasoning if one.reasoning.strip() else ""))
    yield from element("response", body)
    if one.tool_calls:
        yield from open_tag("tools")
        for index, call in enumerate(one.tool_calls, start=1):
            attributes = (("tool", call.name), ("index", str(index)))
            yield from element("call", argument_segments(call.arguments), attributes=attributes)
        yield from close_tag("tools")


def _content(one: Message, sizes: Iterator[ImageSize]) -> Iterator[Segment]:
    for part in one.content:
        if isinstance(part, ImagePart):
            width, height = next(sizes)
            yield media_block(width=width, height=height)
        else:
            yield from plain(part)


def _effort(body: Mapping[str, Any]) -> str | None:
    """How much to think, or None for not at all; the template's own words count as well."""
    options = fields.mapping(body.get("chat_template_kwargs") or {}, "chat_template_kwargs")
    for name in ("thinking", "enable_thinking"):
        if not fields.boolean(options.get(name), f"chat_template_kwargs.{name}", absent=True):
            return None
    places = (
        ("reasoning_effort", body.get("reasoning_effort")),
        ("chat_template_kwargs.thinking_effort", options.get("thinking_effort")),
    )
    where, effort = next(((w, e) for w, e in places if e is not None), ("", notes.DEFAULT_EFFORT))
    if effort not in notes.EFFORTS:
        remedy = (
            f"use one of {', '.join(notes.EFFORTS)}; to turn thinking off, send "
            'chat_template_kwargs {"thinking": false}'
        )
        raise fields.bad_field(where, f"is {fields.shown(effort)}", remedy)
    return str(effort)


def _tool_choice(value: Any) -> str | None:
    if isinstance(value, dict):
        function = fields.mapping(value.get("function"), "tool_choice.function")
        return "named:" + fields.text(function.get("name"), "tool_choice.function.name")
    if value is not None and value not in _CHOICES:
        remedy = f"use one of {', '.join(_CHOICES)}"
        raise fields.bad_field("tool_choice", f"is {fields.shown(value)}", remedy)
    return None if value is None else str(value)


def _response_format(value: Any) -> tuple[str, Any]:
    if value is None:
        return "text", None
    given = {"type": value} if isinstance(value, str) else fields.mapping(value, "response_format")
    kind = given.get("type")
    if kind not in _FORMATS:
        remedy = f"use one of {', '.join(_FORMATS)}"
        raise fields.bad_field("response_format.type", f"is {fields.shown(kind)}", remedy)
    if kind != "json_schema":
        return str(kind), None
    schema = fields.mapping(given.get("json_schema"), "response_format.json_schema")
    return "json_schema", schema.get("schema", schema.get("json_schema", schema))
