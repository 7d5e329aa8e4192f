"""What the service offers, as OpenAPI describes it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from k31ctl.core.chat_format.system_notes import EFFORTS

Schema = dict[str, Any]

_VERSION: Final = "3.1.0"
_TEXT: Final[Schema] = {"type": "string"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_NUMBER: Final[Schema] = {"type": "number"}
_YES: Final[Schema] = {"type": "boolean"}
_OPTIONAL_TEXT: Final[Schema] = {"type": ["string", "null"]}
_OBJECT: Final[Schema] = {"type": "object"}


def openapi_document(model: str, *, needs_key: bool) -> Schema:
    """Return the description of the service for one model."""
    schemas = {
        "Error": _object({"error": _object(_ERROR)}),
        "ChatRequest": _object(_CHAT, ("messages",), closed=False),
        "CompletionRequest": _object(_COMPLETION, ("prompt",), closed=False),
        "TokenizeRequest": _object({"prompt": _PROMPT, "messages": _MESSAGES}, (), closed=False),
        "ChatAnswer": _answer("chat.completion", {"message": _ref("Message")}),
        "CompletionAnswer": _answer("text_completion", {"text": _TEXT}),
        "Message": _object(_MESSAGE, ("role", "content", "reasoning_content", "reasoning")),
        "Usage": _object(_USAGE),
        "Model": _object(_MODEL),
        "Models": _object({"object": {"const": "list"}, "data": _list(_ref("Model"))}),
        "Tokens": _object({"tokens": _list(_COUNT), "count": _COUNT, "max_model_len": _COUNT}),
        "Health": _object({"status": {"const": "ok"}}),
    }
    document: Schema = {
        "openapi": _VERSION,
        "info": {"title": f"k31ctl embedded engine: {model}", "version": "1"},
        "paths": {
            "/v1/chat/completions": _post("ChatRequest", "ChatAnswer", is_streamed=True),
            "/v1/completions": _post("CompletionRequest", "CompletionAnswer", is_streamed=True),
            "/tokenize": _post("TokenizeRequest", "Tokens", is_streamed=False),
            "/v1/models": _get("Models", faults=(401,)),
            "/v1/models/{model}": _get("Model", faults=(401, 404), parameter="model"),
            "/health": _get("Health"),
            "/metrics": {"get": {"responses": {"200": _text("Prometheus", "text/plain")}}},
            "/openapi.json": {"get": {"responses": {"200": _json(_OBJECT, "this document")}}},
        },
        "components": {"schemas": schemas},
    }
    if needs_key:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(items: Schema, **further: Any) -> Schema:
    return {"type": "array", "items": items, **further}


def _object(
    fields: Mapping[str, Schema], required: Iterable[str] | None = None, *, closed: bool = True
) -> Schema:
    needed = list(fields if required is None else required)
    made = {"type": "object", "properties": dict(fields), "required": needed}
    return {**made, "additionalProperties": False} if closed else made


def _json(schema: Schema, text: str) -> Schema:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _text(text: str, kind: str) -> Schema:
    return {"description": text, "content": {kind: {"schema": _TEXT}}}


def _faults(statuses: Iterable[int]) -> Schema:
    return {str(status): _json(_ref("Error"), "what is wrong") for status in statuses}


def _get(name: str, *, faults: Iterable[int] = (), parameter: str | None = None) -> Schema:
    operation: Schema = {"responses": {"200": _json(_ref(name), name), **_faults(faults)}}
    if parameter is not None:
        place = {"name": parameter, "in": "path", "required": True, "schema": _TEXT}
        operation["parameters"] = [place]
    return {"get": operation}


def _post(request: str, answer: str, *, is_streamed: bool) -> Schema:
    done = _json(_ref(answer), answer)
    if is_streamed:
        done["content"]["text/event-stream"] = {"schema": _TEXT}
    faults = _faults((400, 401, 404, 408, 413, 415, 500, 503, 504))
    body = {"required": True, "content": {"application/json": {"schema": _ref(request)}}}
    return {"post": {"requestBody": body, "responses": {"200": done, **faults}}}


def _answer(kind: str, said: Mapping[str, Schema]) -> Schema:
    choice = {
        "index": _COUNT,
        **said,
        "logprobs": {"type": ["object", "null"]},
        "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
    }
    head = {"id": _TEXT, "object": {"const": kind}, "created": _COUNT, "model": _TEXT}
    return _object({**head, "choices": _list(_object(choice)), "usage": _ref("Usage")})


_TOOL: Final[Schema] = _object(
    {
        "type": {"const": "function"},
        "function": _object(
            {"name": _TEXT, "description": _TEXT, "parameters": _OBJECT}, ("name",), closed=False
        ),
    },
    ("function",),
    closed=False,
)
_SENT_CALL: Final[Schema] = _object(
    {
        "id": _TEXT,
        "type": {"const": "function"},
        "function": _object({"name": _TEXT, "arguments": _TEXT}, ("name",), closed=False),
    },
    ("function",),
    closed=False,
)
_FORMAT: Final[Schema] = _object(
    {"type": {"enum": ["text", "json_object", "json_schema"]}, "json_schema": _OBJECT},
    ("type",),
    closed=False,
)
_FUNCTION: Final[Schema] = _object({"name": _TEXT, "arguments": _TEXT})
_CALL: Final[Schema] = _object({"id": _TEXT, "type": {"const": "function"}, "function": _FUNCTION})
_MESSAGE: Final[Schema] = {
    "role": {"const": "assistant"},
    "content": _OPTIONAL_TEXT,
    "reasoning_content": _OPTIONAL_TEXT,
    "reasoning": _OPTIONAL_TEXT,
    "tool_calls": _list(_CALL, minItems=1),
}
_ERROR: Final[Schema] = {
    "message": _TEXT,
    "type": _TEXT,
    "param": _OPTIONAL_TEXT,
    "code": _OPTIONAL_TEXT,
}
_USAGE: Final[Schema] = {
    "prompt_tokens": _COUNT,
    "completion_tokens": _COUNT,
    "total_tokens": _COUNT,
    "completion_tokens_details": _object({"reasoning_tokens": _COUNT}),
}
_MODEL: Final[Schema] = {
    "id": _TEXT,
    "object": {"const": "model"},
    "created": _COUNT,
    "owned_by": _TEXT,
    "max_model_len": _COUNT,
}
_MESSAGES: Final[Schema] = _list(
    _object(
        {
            "role": {"enum": ["system", "developer", "user", "assistant", "tool"]},
            "content": {"type": ["string", "array", "null"]},
            "name": _TEXT,
            "reasoning_content": _OPTIONAL_TEXT,
            "reasoning": _OPTIONAL_TEXT,
            "tool_calls": _list(_SENT_CALL),
            "tool_call_id": _TEXT,
        },
        ("role",),
        closed=False,
    ),
    minItems=1,
)
_PROMPT: Final[Schema] = {"oneOf": [_TEXT, _list(_COUNT, minItems=1)]}
_OPTIONS: Final[Schema] = {
    "model": _TEXT,
    "max_tokens": {"type": "integer", "minimum": 1},
    "max_completion_tokens": {"type": "integer", "minimum": 1},
    "temperature": {**_NUMBER, "minimum": 0, "maximum": 2},
    "top_p": {**_NUMBER, "exclusiveMinimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": -1},
    "min_p": {**_NUMBER, "minimum": 0, "maximum": 1},
    "seed": {"type": "integer"},
    "stop": {"oneOf": [_TEXT, _list(_TEXT, maxItems=16)]},
    "stream": _YES,
    "stream_options": _object({"include_usage": _YES}, (), closed=False),
    "ignore_eos": _YES,
}
_COMPLETION: Final[Schema] = {**_OPTIONS, "prompt": _PROMPT, "logprobs": {**_COUNT, "maximum": 20}}
_CHAT: Final[Schema] = {
    **_OPTIONS,
    "messages": _MESSAGES,
    "tools": _list(_TOOL),
    "tool_choice": {"enum": ["auto", "none", "required"]},
    "parallel_tool_calls": _YES,
    "reasoning_effort": {"enum": list(EFFORTS)},
    "chat_template_kwargs": _OBJECT,
    "response_format": _FORMAT,
    "logprobs": _YES,
    "top_logprobs": {**_COUNT, "maximum": 20},
}
