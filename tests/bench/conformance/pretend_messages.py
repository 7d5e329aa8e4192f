"""Messages on the side of the endpoint: bodies in, documents and events out."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tests.bench.conformance.pretend_model import Said, tokens_of

_CHOICES = {"auto": "auto", "none": "none", "any": "required"}
_KEPT = ("model", "stream", "temperature", "max_tokens")
_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


def chat_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The same request as one of chat completions."""
    chat = {name: body[name] for name in _KEPT if name in body}
    messages = body.get("messages")
    if isinstance(messages, list) and all(isinstance(turn, dict) for turn in messages):
        messages = [message for turn in messages for message in _messages(turn)]
        if "system" in body:
            messages.insert(0, {"role": "system", "content": body["system"]})
    chat["messages"] = messages
    if "tools" in body:
        chat["tools"] = [_tool(tool) for tool in body["tools"]]
    if "tool_choice" in body:
        kind = body["tool_choice"]["type"]
        named = {"type": "function", "function": {"name": body["tool_choice"].get("name")}}
        chat["tool_choice"] = named if kind == "tool" else _CHOICES[kind]
    if "output_config" in body:
        chat["reasoning_effort"] = body["output_config"]["effort"]
    chat["stop"] = body.get("stop_sequences")
    return chat


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool["name"], "description": tool["description"]}
    return {"type": "function", "function": {**function, "parameters": tool["input_schema"]}}


def _messages(turn: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    content = turn["content"]
    if isinstance(content, str):
        yield {"role": turn["role"], "content": content}
        return
    if turn["role"] == "assistant":
        yield _answer(content)
        return
    results = [block for block in content if block["type"] == "tool_result"]
    for block in results:
        yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": block["content"]}
    if not results:
        yield {"role": "user", "content": [_part(block) for block in content]}


def _answer(blocks: list[dict[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": []}
    for block in blocks:
        match block["type"]:
            case "thinking":
                message["reasoning_content"] = block["thinking"]
            case "text":
                message["content"] = block["text"]
            case "tool_use":
                function = {"name": block["name"], "arguments": json.dumps(block["input"])}
                message["tool_calls"].append({"id": block["id"], "function": function})
    return message


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    if block["type"] != "image":
        return dict(block)
    source = block["source"]
    url = f"data:{source['media_type']};base64,{source['data']}"
    return {"type": "image_url", "image_url": {"url": url}}


def _blocks(said: Said) -> list[dict[str, Any]]:
    thinking = {"type": "thinking", "thinking": said.reasoning, "signature": ""}
    blocks: list[dict[str, Any]] = [thinking]
    if said.content:
        blocks.append({"type": "text", "text": said.content})
    for place, (name, given) in enumerate(said.calls):
        blocks.append({"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": given})
    return blocks


def message_document(
    chat: Mapping[str, Any], said: Said, finish: str, usage: dict[str, Any]
) -> dict[str, Any]:
    return {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "pretend",
        "content": _blocks(said),
        "stop_reason": _REASONS[finish],
        "usage": {
            "input_tokens": usage["prompt_tokens"],
            "output_tokens": usage["completion_tokens"],
        },
    }


def message_events(
    chat: Mapping[str, Any], said: Said, finish: str, usage: dict[str, Any]
) -> Iterator[bytes]:
    started = {"usage": {"input_tokens": usage["prompt_tokens"], "output_tokens": 0}}
    yield _event("message_start", message=started)
    for index, block in enumerate(_blocks(said)):
        yield from _block_events(index, block)
    counted = {"output_tokens": usage["completion_tokens"]}
    yield _event("message_delta", delta={"stop_reason": _REASONS[finish]}, usage=counted)
    yield _event("message_stop")


def _block_events(index: int, block: dict[str, Any]) -> Iterator[bytes]:
    kind = block["type"]
    empty: dict[str, Any] = {"input": {}} if kind == "tool_use" else {kind: ""}
    yield _event("content_block_start", index=index, content_block={**block, **empty})
    if kind == "tool_use":
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        yield _event("content_block_delta", index=index, delta=delta)
    else:
        for token in tokens_of(block[kind]):
            delta = {"type": f"{kind}_delta", kind: token}
            yield _event("content_block_delta", index=index, delta=delta)
    yield _event("content_block_stop", index=index)


def _event(kind: str, **fields: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()
