"""Requests as work for the generator: every field checked, the prompt as ids."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from k31ctl.core.chat_format import json_fields as fields
from k31ctl.core.chat_format.prompt import (
    ChatRequest,
    last_opener,
    prompt_segments,
    read_chat_request,
)
from k31ctl.core.model import Vision
from k31ctl.engine.images import SizedImage, prepared_image, sized_image
from k31ctl.engine.service.context import (
    LEAST_TOKENS_OF_ELEMENT,
    least_tokens,
    refuse_too_long,
    refuse_too_many,
    refuse_too_much_text,
)
from k31ctl.engine.service.generator import Generation, Sampling
from k31ctl.engine.service.limits import Limits
from k31ctl.engine.tokenizer import Tokenizer
from k31ctl.values import frozen

_MOST_STOPS: Final = 16
_MOST_STOP_CHARACTERS: Final = 256
_MOST_LOGPROBS: Final = 20
_MOST_TEMPERATURE: Final = 2.0
_SEEDS: Final = (-(2**63), 2**64 - 1)
_NOT_OFFERED: Final[Mapping[str, Sequence[Any]]] = {
    "n": (1,),
    "best_of": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "echo": (False,),
    "suffix": ("",),
    "continue_final_message": (False,),
    "functions": ([],),
}


@frozen
class ServedModel:
    """What is served: its name, its words, its sight and how far it sees."""

    name: str
    tokenizer: Tokenizer
    vision: Vision | None
    max_model_tokens: int


@frozen
class Task:
    """One request, ready to run.

    ``num_prompt_tokens`` leaves out the opener of the answer's first channel, as Moonshot's count
    does. ``num_earlier_calls`` numbers the calls of this answer. ``chat`` is None for a completion.
    """

    work: Generation
    num_prompt_tokens: int
    stops: tuple[str, ...]
    is_streamed: bool
    includes_usage: bool
    ignores_end: bool
    chat: ChatRequest | None = None
    num_earlier_calls: int = 0
    has_one_call: bool = False
    warnings: tuple[str, ...] = ()


def chat_task(body: Mapping[str, Any], model: ServedModel, limits: Limits) -> Task:
    """Return the work of a chat request.

    Raises ``InputError`` for a bad field, ``ApiError`` for what does not fit.
    """
    _refuse_not_offered(body)
    chat = _read_chat(body, model)
    _refuse_unlawful_tools(chat)
    images = _images(chat, model, limits)
    ids = _chat_ids(chat, images, model)
    wants = fields.boolean(body.get("logprobs"), "logprobs", absent=False)
    top = body.get("top_logprobs") or 0
    room = refuse_too_long(len(ids), model.max_model_tokens, param="messages")
    num_top = _num_top(top, "top_logprobs")
    sampling = _sampling(body, min(room, limits.max_new_tokens), model, num_top if wants else None)
    is_parallel = fields.boolean(
        body.get("parallel_tool_calls"), "parallel_tool_calls", absent=True
    )
    return Task(
        work=Generation(
            prompt_ids=tuple(ids),
            images=tuple(prepared_image(image) for image in images),
            sampling=sampling,
        ),
        num_prompt_tokens=len(ids) - len(model.tokenizer.encode_prompt(last_opener(chat))),
        chat=chat,
        num_earlier_calls=sum(len(message.tool_calls) for message in chat.messages),
        has_one_call=not is_parallel,
        warnings=_warnings(chat),
        **_ending(body),
    )


def completion_task(body: Mapping[str, Any], model: ServedModel, limits: Limits) -> Task:
    """Return the work of a completion request; the prompt is text or ids, as they are."""
    _refuse_not_offered(body)
    ids = _plain_prompt(body.get("prompt"), model)
    if not ids:
        raise fields.bad_field("prompt", "is empty", "send at least one character")
    room = refuse_too_long(len(ids), model.max_model_tokens, param="prompt")
    num_top = _num_top(body.get("logprobs"), "logprobs")
    sampling = _sampling(body, min(room, limits.max_new_tokens), model, num_top)
    return Task(
        work=Generation(prompt_ids=tuple(ids), images=(), sampling=sampling),
        num_prompt_tokens=len(ids),
        **_ending(body),
    )


def prompt_ids(body: Mapping[str, Any], model: ServedModel, limits: Limits) -> list[int]:
    """Return the ids of a prompt, or of the messages of a chat."""
    if "messages" not in body:
        return _plain_prompt(body.get("prompt"), model)
    chat = _read_chat(body, model)
    return _chat_ids(chat, _images(chat, model, limits), model)


def _read_chat(body: Mapping[str, Any], model: ServedModel) -> ChatRequest:
    """Return a chat whose messages, parts, calls and arguments may fit the context.

    They are counted before anything is built of them: a million empty ones are a small body.
    """
    refuse_too_many(least_tokens(body), model.max_model_tokens)
    chat = read_chat_request(body)
    calls = (call for message in chat.messages for call in message.tool_calls)
    num_arguments = sum(len(call.arguments.items) for call in calls)
    refuse_too_many(num_arguments * LEAST_TOKENS_OF_ELEMENT, model.max_model_tokens)
    return chat


def _chat_ids(chat: ChatRequest, images: Sequence[SizedImage], model: ServedModel) -> list[int]:
    sizes = [(image.tokens.width, image.tokens.height) for image in images]
    segments = prompt_segments(chat, image_sizes=sizes)
    num_characters = sum(len(segment.text) for segment in segments)
    refuse_too_much_text(num_characters, model.max_model_tokens, param="messages")
    counts = [image.tokens.num_tokens for image in images]
    return model.tokenizer.encode_prompt(segments, image_tokens=counts)


def _refuse_not_offered(body: Mapping[str, Any]) -> None:
    for name, allowed in _NOT_OFFERED.items():
        value = body.get(name)
        if value is not None and value not in allowed:
            raise fields.bad_field(
                name,
                f"is {fields.shown(value)}, which is not offered",
                f"leave it out, or send {json.dumps(allowed[0])}",
            )


def _refuse_unlawful_tools(chat: ChatRequest) -> None:
    choice = chat.tool_choice or ""
    if choice.startswith("named:"):
        remedy = "use required, with this tool alone in tools"
        raise fields.bad_field(
            "tool_choice", "names a function; decoding is not constrained", remedy
        )
    has_tools = chat.tools or any(message.tools for message in chat.messages)
    if choice == "required" and not has_tools:
        raise fields.bad_field("tool_choice", "is required, without tools", "send tools")


def _images(chat: ChatRequest, model: ServedModel, limits: Limits) -> list[SizedImage]:
    """The images of a request, of which together no more than the context holds is decoded."""
    parts = chat.images
    if parts and (model.vision is None or model.tokenizer.media_pad is None):
        raise fields.bad_field(parts[0].where, "is an image, and none are served here", "send text")
    if len(parts) > limits.max_images:
        what = f"holds {len(parts)} images, more than {limits.max_images}"
        raise fields.bad_field("messages", what, "send fewer")
    sized: list[SizedImage] = []
    num_tokens = 0
    for part in parts:
        if model.vision is not None:
            sized.append(sized_image(part, model.vision))
            num_tokens += sized[-1].tokens.num_tokens
            refuse_too_long(num_tokens, model.max_model_tokens, param="messages")
    return sized


def _plain_prompt(value: Any, model: ServedModel) -> list[int]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        refuse_too_much_text(len(value), model.max_model_tokens, param="prompt")
        return model.tokenizer.encode_text(value)
    if not isinstance(value, list) or not value:
        raise fields.bad_field("prompt", f"is {fields.shown(value)}", "send one text, or token ids")
    high = model.tokenizer.num_ids - 1
    ids = [fields.integer(i, f"prompt[{n}]", low=0, high=high) for n, i in enumerate(value)]
    if model.vision is not None and model.tokenizer.media_pad in ids:
        place = f"prompt[{ids.index(model.tokenizer.media_pad)}]"
        raise fields.bad_field(place, "is the place of an image", "send images in a chat")
    return ids


def _num_top(value: Any, name: str) -> int | None:
    return None if value is None else fields.integer(value, name, low=0, high=_MOST_LOGPROBS)


def _sampling(
    body: Mapping[str, Any], most_tokens: int, model: ServedModel, num_top: int | None
) -> Sampling:
    names = ("max_completion_tokens", "max_tokens")
    name = next((name for name in names if body.get(name) is not None), names[0])
    asked = body.get(name)
    if asked is not None:
        fields.integer(asked, name, low=1, high=2**31)
    seed = body.get("seed")
    top_k = body.get("top_k")
    ends = () if body.get("ignore_eos") is True else (model.tokenizer.end_of_message,)
    return Sampling(
        max_tokens=min(most_tokens, asked or most_tokens),
        temperature=_number(body, "temperature", 1.0, low=0.0, high=_MOST_TEMPERATURE),
        top_p=_number(body, "top_p", 1.0, low=1e-6, high=1.0),
        top_k=0 if top_k is None else max(0, fields.integer(top_k, "top_k", low=-1, high=2**31)),
        min_p=_number(body, "min_p", 0.0, low=0.0, high=1.0),
        seed=seed if seed is None else fields.integer(seed, "seed", low=_SEEDS[0], high=_SEEDS[1]),
        stop_ids=frozenset(ends),
        num_top_logprobs=num_top,
    )


def _number(body: Mapping[str, Any], name: str, absent: float, *, low: float, high: float) -> float:
    value = body.get(name)
    return absent if value is None else fields.number(value, name, low=low, high=high)


def _ending(body: Mapping[str, Any]) -> dict[str, Any]:
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else fields.listed(stop, "stop")
    if len(stops) > _MOST_STOPS:
        raise fields.bad_field("stop", f"holds more than {_MOST_STOPS} strings", "send fewer")
    for index, one in enumerate(stops):
        if not 1 <= len(fields.text(one, f"stop[{index}]")) <= _MOST_STOP_CHARACTERS:
            remedy = f"send 1 to {_MOST_STOP_CHARACTERS} characters"
            raise fields.bad_field(f"stop[{index}]", f"has {len(one)} characters", remedy)
    options = fields.mapping(body.get("stream_options") or {}, "stream_options")
    usage = options.get("include_usage")
    return {
        "stops": tuple(stops),
        "is_streamed": fields.boolean(body.get("stream"), "stream", absent=False),
        "includes_usage": fields.boolean(usage, "stream_options.include_usage", absent=False),
        "ignores_end": fields.boolean(body.get("ignore_eos"), "ignore_eos", absent=False),
    }


def _warnings(chat: ChatRequest) -> tuple[str, ...]:
    if not chat.is_thinking or not any(message.lacks_reasoning for message in chat.messages):
        return ()
    return ("an earlier answer came without its reasoning; send reasoning_content back",)
