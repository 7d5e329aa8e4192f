"""What vLLM does to its words before argparse sees them.

Underscores in flags become dashes, ``-O3`` becomes ``--optimization-level 3``, ``--flag.key value``
is gathered into one JSON object per flag, and ``vllm serve --model X`` is ``vllm serve X``.
Source: vLLM 0.33.0, vllm/utils/argparse_utils.py, ``FlexibleArgumentParser.parse_args``.
"""

import json
from collections.abc import Sequence
from typing import Any

from k31ctl.core.argument_words import Word
from k31ctl.core.flag_values import human_number
from k31ctl.core.launch import Problem, ReadProblem
from k31ctl.values import frozen

_LEVELS = ("0", "1", "2", "3")


@frozen
class Prepared:
    """The words that argparse sees, and what was wrong with them before."""

    words: tuple[Word, ...]
    problems: tuple[ReadProblem, ...]


def prepare_vllm_words(words: Sequence[Word], *, model_first: bool) -> Prepared:
    """Return the words as argparse gets them; ``model_first`` for ``vllm serve``."""
    problems: list[ReadProblem] = []
    given = _model_in_front(words, problems) if model_first else list(words)
    dashed = [each for at, word in enumerate(given) for each in _dashed(given, at, word)]
    gathered = _gathered(dashed, problems)
    return Prepared(words=tuple(gathered), problems=tuple(problems))


def _model_in_front(words: Sequence[Word], problems: list[ReadProblem]) -> list[Word]:
    """Move the value of ``--model`` to where ``vllm serve`` expects the model."""
    for at, word in enumerate(words):
        head, equals, value = word.text.partition("=")
        if head != "--model" or (equals and not value):
            continue
        if not equals and at + 1 == len(words):
            problems.append(_missing(word, "--model"))
            return [*words[:at]]
        following = () if equals else words[at + 1].positions
        model = Word(
            text=value if equals else words[at + 1].text, positions=(*word.positions, *following)
        )
        return [model, *words[:at], *words[at + (1 if equals else 2) :]]
    return list(words)


def _dashed(words: Sequence[Word], at: int, word: Word) -> list[Word]:
    """Return one word with the dashes that argparse knows."""
    text = word.text
    if text.startswith("--"):
        name, equals, value = text.partition("=")
        head, dot, keys = name.partition(".")
        dashed = f"{head.replace('_', '-')}{dot}{keys}{equals}{value}"
        return [Word(text=dashed, positions=word.positions)]
    level_follows = at + 1 < len(words) and words[at + 1].text in _LEVELS
    if text == "-O" and level_follows:
        return [Word(text="--optimization-level", positions=word.positions)]
    if text.startswith("-O") and text != "-O":
        level = text[3:] if text[2] == "=" else text[2:]
        return [
            Word(text="--optimization-level", positions=word.positions),
            Word(text=level, positions=()),
        ]
    return [word]


def _gathered(words: Sequence[Word], problems: list[ReadProblem]) -> list[Word]:
    """Gather ``--flag.key value`` into one object for each flag, behind all other words."""
    objects: dict[str, dict[str, Any]] = {}
    positions: dict[str, tuple[int, ...]] = {}
    kept: list[Word] = []
    at = 0
    while at < len(words):
        word = words[at]
        name, equals, value = word.text.partition("=")
        at += 1
        if not word.text.startswith("-") or "." not in name:
            kept.append(word)
            continue
        where = word.positions
        if not equals:
            if at == len(words):
                problems.append(_missing(word, name))
                continue
            value = words[at].text
            where = (*where, *words[at].positions)
            at += 1
        flag, *keys = name.removesuffix("+").split(".")
        read = _listed(value) if name.endswith("+") else _value(value)
        for key in reversed(keys):
            read = {key: read}
        _merge(objects.setdefault(flag, {}), read)
        positions[flag] = (*positions.get(flag, ()), *where)
    return kept + _as_json(objects, positions, kept, problems)


def _as_json(
    objects: dict[str, dict[str, Any]],
    positions: dict[str, tuple[int, ...]],
    kept: list[Word],
    problems: list[ReadProblem],
) -> list[Word]:
    """Return each gathered object as a flag and its JSON, and tell where it replaces another."""
    added: list[Word] = []
    for flag, value in objects.items():
        if any(word.text.partition("=")[0] == flag for word in kept):
            message = f"{flag}.{next(iter(value), '')} replaces the whole of {flag} {{...}}"
            problems.append(
                ReadProblem(
                    problem=Problem.OVERRIDDEN_OBJECT,
                    subject=flag,
                    message=message,
                    positions=positions[flag],
                )
            )
        added += [
            Word(text=flag, positions=positions[flag]),
            Word(text=json.dumps(value), positions=()),
        ]
    return added


def _listed(value: str) -> Any:
    return value.split(",")


def _value(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        try:
            return human_number(value, engine="vllm")
        except ValueError:
            return value


def _merge(original: dict[str, Any], update: dict[str, Any]) -> None:
    for key, value in update.items():
        held = original.get(key)
        if isinstance(value, dict) and isinstance(held, dict):
            _merge(held, value)
        elif isinstance(value, list) and isinstance(held, list):
            held += value
        else:
            original[key] = value


def _missing(word: Word, name: str) -> ReadProblem:
    return ReadProblem(
        problem=Problem.MISSING_VALUE,
        subject=name,
        message=f"{name} needs a value",
        positions=word.positions,
    )
