"""Prompts have the length that was asked for, and begin as no other does."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from k31ctl.bench.prompts import WORDS, Prompts, Ring
from tests.bench.runs import finished
from tests.bench.sse_server import Asked, answer, plain, running_server


def prompts(shared: float = 0.0, seed: int = 0) -> Prompts:
    return Prompts(seed=seed, shared_fraction=shared)


@given(st.integers(1, 300), st.integers(0, 10_000), st.floats(0, 1))
def test_every_prompt_has_its_number_of_known_words(n: int, number: int, shared: float) -> None:
    words = prompts(shared).text(n, number).split()
    assert len(words) == n
    assert set(words) <= set(WORDS)


@given(st.integers(1, 50), st.integers(0, 200))
def test_a_ring_holds_the_same_words_from_every_place(n: int, place: int) -> None:
    ring = Ring(Random(n).choices(WORDS, k=n))
    assert sorted(ring.text(place).split()) == sorted(ring.text(0).split())


def test_prompts_differ_from_their_first_words_on() -> None:
    texts = [prompts().text(200, number) for number in range(2000)]
    assert len({" ".join(text.split()[:16]) for text in texts}) == 2000


def test_a_shared_prefix_is_the_same_in_all() -> None:
    texts = [prompts(0.5).text(100, number).split() for number in range(50)]
    assert len({tuple(text[:50]) for text in texts}) == 1
    assert len({tuple(text[50:60]) for text in texts}) == 50


def test_the_same_seed_gives_the_same_prompts_and_another_others() -> None:
    assert prompts(seed=3).text(40, 7) == prompts(seed=3).text(40, 7)
    assert prompts(seed=3).text(40, 7) != prompts(seed=4).text(40, 7)


def pieces(text: str) -> int:
    """Tokens of a tokenizer of this test: one for four letters, and one for the start."""
    return 1 + sum((len(word) + 3) // 4 for word in text.split())


def tokenize(asked: Asked) -> bytes:
    return plain(200, {"count": pieces(asked.json["prompt"])})


def test_lengths_are_made_with_the_tokenizer_of_the_endpoint() -> None:
    with running_server(answer, routes={"/tokenize": tokenize}) as server:
        end = finished(server.url, num_requests=40, prompt_tokens=90, shared_fraction=0.3)
    found = {pieces(asked.json["messages"][0]["content"]) for asked in server.completions()}
    assert end.tokens_from.startswith("the endpoint's /tokenize")
    (length,) = found
    assert length == 90 or end.notes == (
        f"prompts are {length - 90:+d} tokens off what was asked for",
    )


@given(st.integers(20, 2000))
def test_calibration_says_how_far_it_is_off(tokens: int) -> None:
    made = prompts()
    off = made.calibrate(tokens, pieces)
    assert off is not None
    assert pieces(made.text(tokens, 5)) == tokens + off
    assert abs(off) <= 2  # a word has at most three


def test_without_a_tokenizer_it_is_said_to_be_a_guess() -> None:
    with running_server() as server:
        end = finished(server.url)
    assert "guess" in end.tokens_from
