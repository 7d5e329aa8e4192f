"""Each check fails where its part of the contract is broken, and the others do not."""

import pytest

from k31ctl.bench.conformance.registry import CHECKS
from k31ctl.bench.conformance.verdicts import Verdict
from tests.bench.conformance import mutations as broken
from tests.bench.conformance.pretend_service import KEY, Service
from tests.bench.conformance.runs import failing, results

# What must fail in each. Where it is two, both tell of the same fault from two sides.
MUTATIONS: list[tuple[type[Service], set[str]]] = [
    (broken.WrongObject, {"answer-shape"}),
    (broken.NoFinish, {"answer-shape", "stream-equal"}),
    (broken.NoDone, {"stream-shape"}),
    (broken.FinishTwice, {"stream-shape"}),
    (broken.LosesTheEndOfStreams, {"stream-equal"}),
    (broken.LeaksMarks, {"reasoning-separated"}),
    (broken.TwoReasonings, {"reasoning-separated"}),
    (broken.AnswerTakenForReasoning, {"reasoning-separated"}),
    (broken.CutReasoningIsContent, {"reasoning-cut", "effort-values"}),
    (broken.WrongTotal, {"usage"}),
    (broken.PassesTheLimit, {"max-tokens"}),
    (broken.CallsEndWithStop, {"tool-call"}),
    (broken.CallsWithoutIdsInStreams, {"tool-stream"}),
    (broken.CallsAgainstTheChoice, {"tool-choice"}),
    (broken.IgnoresRequired, {"tool-choice"}),
    (broken.LosesResults, {"tool-round-trip", "prompt-tokens"}),
    (broken.ResultsByPlace, {"parallel-calls"}),
    (broken.OneIdForAllCalls, {"parallel-calls"}),
    (broken.MixesArguments, {"parallel-calls"}),
    (broken.ForgetsReasoning, {"reasoning-kept", "prompt-tokens"}),
    (broken.NeedsReasoning, {"reasoning-dropped"}),
    (broken.RefusesHigh, {"effort-values"}),
    (broken.TakesAnyEffort, {"effort-rejected"}),
    (broken.NoNoteWithoutEffort, {"effort-note"}),
    (broken.NoNote, {"prompt-tokens"}),
    (broken.NoNoteOfFormats, {"prompt-tokens"}),
    (broken.CountsTheOpener, {"prompt-opener"}),
    (broken.TakesMarksFromUsers, {"markup-is-text"}),
    (broken.IgnoresSchemas, {"json-schema"}),
    (broken.IgnoresJsonObject, {"json-object"}),
    (broken.GoesPastStops, {"stop"}),
    (broken.StopsReasoning, {"stop"}),
    (broken.NoLogprobs, {"logprobs"}),
    (broken.SplitsLetters, {"unicode"}),
    (broken.FailsOnControls, {"control-characters"}),
    (broken.FailsOnSurrogates, {"control-characters"}),
    (broken.SmallPictures, {"image"}),
    (broken.FailsOnBadJson, {"error-shapes"}),
    (broken.TakesAnyTemperature, {"error-shapes"}),
    (broken.AnyKey, {"wrong-key"}),
    (broken.MixesConversations, {"isolation"}),
    (broken.KeepsTheDead, {"cancellation"}),
    (broken.CutsPrompts, {"context-exceeded"}),
    (broken.ReadsHalf, {"long-context"}),
]


@pytest.mark.parametrize(
    ("service", "expected"), MUTATIONS, ids=[service.__name__ for service, _ in MUTATIONS]
)
def test_what_is_broken_is_found_and_nothing_else(
    service: type[Service], expected: set[str]
) -> None:
    token = KEY if service.key else None
    found = results(service(), token=token, check_s=6.0)
    assert failing(found) == expected, {name: found[name].detail for name in failing(found)}
    for name in expected:
        assert found[name].evidence, "what failed shows what was asked and answered"


def test_every_check_has_a_mutation_that_it_finds() -> None:
    assert set().union(*(expected for _, expected in MUTATIONS)) == {c.id for c in CHECKS}


@pytest.mark.parametrize("api", ["chat", "messages"])
def test_a_service_that_keeps_the_contract_passes_every_check(api: str) -> None:
    class WithKey(Service):
        key = KEY

    found = results(WithKey(), api=api, token=KEY)
    told = {name: r.detail for name, r in found.items() if r.verdict is not Verdict.PASSED}
    chat_alone = {"json-schema", "json-object", "logprobs"}
    assert set(told) == (chat_alone if api == "messages" else set())
