"""A body of chat completions as one of Anthropic's Messages.

Source: Anthropic's Messages API as vLLM 0.33.0 and SGLang 0.5.23 convert it, read backwards.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_KEPT: Final = ("model", "stream", "temperature", "max_tokens")


def messages_body(chat: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body; what Messages has no field for is left out.

    Thinking is asked for, as this model always thinks and Messages does not unless asked.
    """
    body: dict[str, Any] = {name: chat[name] for name in _KEPT if chat.get(name) is not None}
    body["thinking"] = {"type": "adaptive"}
    messages = chat.get("messages")
    if isinstance(messages, list):
        system, rest = _system(messages)
        body |= {"messages": _turns(rest)} | ({"system": system} if system else {})
    elif messages is not None:
        body["messages"] = messages
    if chat.get("tools"):
        body["tools"] = [_tool(tool["function"]) for tool in chat["tools"]]
    if (choice := chat.get("tool_choice")) is not None:
        body["tool_choice"] = _choice(choice)
    if (effort := chat.get("reasoning_effort")) is not None:
        body["output_config"] = {"effort": effort}
    if (stop := chat.get("stop")) is not None:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    return body


def _system(messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[Mapping[str, Any]]]:
    if messages and messages[0].get("role") == "system":
        return str(messages[0]["content"]), list(messages[1:])
    return "", list(messages)


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages by turns; results of tools are blocks of one user's turn."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        role = message["role"]
        if role == "assistant":
            turns.append({"role": role, "content": _answer(message)})
        elif role == "tool":
            result = {
                "type": "tool_result",
                "tool_use_id": message["tool_call_id"],
                "content": message["content"],
            }
            if turns and turns[-1]["role"] == "user" and isinstance(turns[-1]["content"], list):
                turns[-1]["content"].append(result)
            else:
                turns.append({"role": "user", "content": [result]})
        else:
            turns.append({"role": role, "content": _content(message["content"])})
    return turns


def _answer(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": ""})
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls") or ():
        function = call["function"]
        given = json.loads(function["arguments"] or "{}")
        blocks.append(
            {"type": "tool_use", "id": call["id"], "name": function["name"], "input": given}
        )
    return blocks


def _content(content: Any) -> Any:
    return [_part(part) for part in content] if isinstance(content, list) else content


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part["type"] != "image_url":
        return dict(part)
    head, _, data = part["image_url"]["url"].partition(";base64,")
    source = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}
    return {"type": "image", "source": source}


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function["parameters"],
    }


def _choice(choice: Any) -> dict[str, Any]:
    if isinstance(choice, str):
        return {"type": _CHOICES.get(choice, choice)}
    return {"type": "tool", "name": choice["function"]["name"]}
