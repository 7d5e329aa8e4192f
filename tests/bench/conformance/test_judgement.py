"""What no mutation shows: whims of a model, endpoints that tell less, keys, busy ones."""

import itertools
from collections.abc import Mapping
from typing import Any

import pytest

from k31ctl.bench.conformance.verdicts import Verdict
from k31ctl.report.conformance import conformance_result
from k31ctl.report.conformance_text import conformance_text
from tests.bench.conformance.mutations import NoNote
from tests.bench.conformance.pretend_model import Said
from tests.bench.conformance.pretend_service import KEY, FaultError, Service, serving
from tests.bench.conformance.runs import BOTH, ended, failing, results


class Dull(Service):
    """Says the same to everything."""

    def say(self, chat: Mapping[str, Any]) -> Said:
        return Said(
            "I think of the sea, and of the ships on it, and of the wind in sails.", "Fjord."
        )


def test_a_model_that_answers_beside_the_point_breaks_only_what_is_promised() -> None:
    found = results(Dull())
    assert failing(found) == {"json-schema", "json-object", "tool-choice"}
    assert found["tool-call"].verdict is Verdict.INCONCLUSIVE
    assert "not enforced" in found["tool-choice"].detail


class Lost(Service):
    """Ends each message while it thinks, about something else or with the answer."""

    def __init__(self, thought: str) -> None:
        super().__init__()
        self.thought = thought

    def say(self, chat: Mapping[str, Any]) -> Said:
        return Said(self.thought)


def test_an_answer_that_no_one_gave_is_not_a_lost_one() -> None:
    only = ["reasoning-separated", "long-context"]
    assert failing(results(Lost("42, or is it 58213? I shall say so."), only=only)) == {*only}
    only.append("logprobs")
    found = results(Lost("I think of the sea, and of the ships on it."), only=only)
    assert {found[name].verdict for name in only} == {Verdict.INCONCLUSIVE}


class Restless(Service):
    """Thinks something else each time."""

    part = "reasoning"

    def __init__(self) -> None:
        super().__init__()
        self.numbers = itertools.count()

    def say(self, chat: Mapping[str, Any]) -> Said:
        said = super().say(chat)
        setattr(said, self.part, f"{getattr(said, self.part)} {next(self.numbers)}")
        return said


class Undecided(Restless):
    part = "content"


@pytest.mark.parametrize(
    ("service", "verdict"),
    [(Restless, Verdict.PASSED), (Undecided, Verdict.INCONCLUSIVE)],
)
def test_what_never_repeats_itself_is_not_blamed_on_streaming(
    service: type[Service], verdict: Verdict
) -> None:
    assert results(service(), only=["stream-equal"])["stream-equal"].verdict is verdict


class Plain(Service):
    has_tokenizer = has_metrics = False


class PlainNoNote(Plain, NoNote):
    pass


def test_without_a_tokenizer_lengths_of_text_must_do() -> None:
    only = ["prompt-tokens", "prompt-opener", "cancellation", "image"]
    found = results(Plain(), only=only)
    assert found["prompt-tokens"].detail == "6 prompts as rendered, by length of text, roughly"
    assert found["prompt-opener"].verdict is Verdict.SKIPPED
    assert found["image"].verdict is Verdict.PASSED
    assert found["cancellation"].verdict is Verdict.INCONCLUSIVE
    assert failing(results(PlainNoNote(), only=only)) == {"prompt-tokens"}


def test_a_missing_note_is_named() -> None:
    detail = results(NoNote(), only=["prompt-tokens"])["prompt-tokens"].detail
    assert "the thinking-effort note is missing" in detail


class HostedLike(Service):
    """Takes no temperature but 1, no seed, and no reasoning_effort."""

    def check(self, chat: Mapping[str, Any]) -> None:
        super().check(chat)
        if {"temperature", "seed", "reasoning_effort"} & chat.keys():
            raise FaultError(400, "that is fixed")


def test_questions_carry_only_what_is_taken() -> None:
    with serving(Service()) as url:
        assert ended(url, only=["usage"]).common == {"reasoning_effort": "low", "seed": 7}
    with serving(HostedLike()) as url:
        end = ended(url, only=["usage"])
    assert (end.common, end.results[0].verdict) == ({}, Verdict.PASSED)


class OnlyAnthropicKeys(Service):
    key = KEY

    def check_key(self, headers: Mapping[str, str]) -> None:
        given = headers.get("X-Api-Key"), headers.get("Anthropic-Version")
        if given != (KEY, "2023-06-01"):
            raise FaultError(401, "no key")


def test_messages_carry_the_headers_of_their_api() -> None:
    found = results(OnlyAnthropicKeys(), api="messages", token=KEY, only=["usage", "wrong-key"])
    assert {result.verdict for result in found.values()} == {Verdict.PASSED}


class BusyAtFirst(Service):
    """Refuses each question once."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def check(self, chat: Mapping[str, Any]) -> None:
        super().check(chat)
        asked = repr(sorted(chat.items()))
        if "Hello." not in asked and asked not in self.seen:
            self.seen.add(asked)
            raise FaultError(429, "slowly")

    def fault_headers(self, status: int) -> dict[str, str]:
        return {"Retry-After": "0"} if status == 429 else {}


class AlwaysBusy(BusyAtFirst):
    def check(self, chat: Mapping[str, Any]) -> None:
        self.seen.clear()
        super().check(chat)


def test_a_busy_endpoint_is_asked_again() -> None:
    only = ["usage", "effort-rejected"]
    found = results(BusyAtFirst(), only=only)
    assert {result.verdict for result in found.values()} == {Verdict.PASSED}
    found = results(AlwaysBusy(), only=["usage", "max-tokens"])
    assert {result.verdict for result in found.values()} == {Verdict.INCONCLUSIVE}


class ThinkingLast(Service):
    def message(self, document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "content": document["content"][::-1]}


class NoInputTokens(Service):
    def message(self, document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "usage": {"output_tokens": 3}}


class TextForThinking(Service):
    def message(self, document: dict[str, Any]) -> dict[str, Any]:
        blocks = [{"type": "text", "text": "<think>hm</think>"}, *document["content"][1:]]
        return {**document, "content": blocks}


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        (ThinkingLast, "answer-shape"),
        (NoInputTokens, "usage"),
        (TextForThinking, "reasoning-separated"),
    ],
)
def test_messages_out_of_form_are_found(service: type[Service], expected: str) -> None:
    assert expected in failing(results(service(), api="messages"))


def test_a_picture_that_is_refused_is_left_out() -> None:
    class Blind(Service):
        def check(self, chat: Mapping[str, Any]) -> None:
            super().check(chat)
            if isinstance(chat["messages"][-1]["content"], list):
                raise FaultError(400, "there are no eyes here")

    result = results(Blind(), only=["image"])["image"]
    assert result.verdict is Verdict.SKIPPED
    assert "there are no eyes here" in result.detail


def test_both_kinds_of_api_are_served_by_the_same_questions() -> None:
    with serving(Service(), paths=BOTH) as url:
        found = [
            evidence.read or {}
            for api in ("chat", "messages")
            for evidence in ended(url, api=api, only=["tool-call"]).results[0].evidence
        ]
    assert [set(read) for read in found] == [
        {"reasoning_content", "calls", "finish", "prompt_tokens", "completion_tokens"},
        {"thinking", "calls", "finish", "prompt_tokens", "completion_tokens"},
    ]
    assert found[0]["prompt_tokens"] == found[1]["prompt_tokens"]


def test_what_proves_nothing_is_not_called_kept() -> None:
    with serving(Dull()) as url:
        unclear, kept = ended(url, only=["tool-call"]), ended(url, only=["usage"])
        mixed = ended(url, only=["tool-call", "usage"])
    found = [conformance_result(end)["kept"] for end in (unclear, kept, mixed)]
    told = [conformance_text(end, ()).partition(":")[0] for end in (unclear, kept, mixed)]
    assert found == [False, True, True]
    assert told == [
        "Nothing is proven",
        "The contract is kept",
        "Nothing found breaks the contract",
    ]
