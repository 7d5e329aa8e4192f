"""Which of the words of ``ts serve`` go to the engine, to the gateway and to neither.

Flags are compared whole. What nobody knows goes to the gateway, which refuses it late.
Source: TokenSpeed 0.1.1, tokenspeed/cli/_argsplit.py.
"""

from collections.abc import Sequence
from typing import Final

from k31ctl.core.argument_words import Word
from k31ctl.core.flags import Flag, Orchestrator, flags_by_spelling
from k31ctl.core.launch import Problem, ReadProblem
from k31ctl.values import frozen

HEADLESS: Final = "--headless"


@frozen
class Split:
    """The words of each program; the gateway's do not hold those that the engine gets as well."""

    engine: tuple[Word, ...]
    gateway: tuple[Word, ...]
    orchestrator: tuple[Word, ...]
    problems: tuple[ReadProblem, ...]


def split_words(
    words: Sequence[Word], orchestrator: Orchestrator, *, engine_flags: tuple[Flag, ...]
) -> Split:
    """Return the words of each program, each flag in the spelling that its program knows."""
    known = {name for name in flags_by_spelling(engine_flags) if name.startswith("--")}
    own = {flag.name for flag in orchestrator.flags}
    problems: list[ReadProblem] = []
    parts: dict[str, list[Word]] = {"engine": [], "gateway": [], "orchestrator": []}
    if any(word.text == HEADLESS for word in words):
        headless = [word for word in words if word.text != HEADLESS]
        return _headless(headless, own)
    for item in _items(_with_model_flag(words, problems), orchestrator, problems):
        name = item[0].text
        if name in own:
            part = "orchestrator"
        elif name in orchestrator.to_both:
            part = "engine"
        elif name in orchestrator.to_gateway or name not in known:
            part = "gateway"
        else:
            part = "engine"
        parts[part] += item
    return Split(
        engine=tuple(parts["engine"]),
        gateway=tuple(parts["gateway"]),
        orchestrator=tuple(parts["orchestrator"]),
        problems=tuple(problems),
    )


def _headless(words: list[Word], own: set[str]) -> Split:
    """Give everything to the engine, which runs alone; the launcher's own flags are refused."""
    problems = [
        ReadProblem(
            problem=Problem.UNKNOWN_FLAG,
            subject=word.text,
            message=f"{word.text} has no meaning with {HEADLESS}",
            positions=word.positions,
        )
        for word in words
        if word.text.partition("=")[0] in own
    ]
    return Split(engine=tuple(words), gateway=(), orchestrator=(), problems=tuple(problems))


def _with_model_flag(words: Sequence[Word], problems: list[ReadProblem]) -> list[Word]:
    """Return the words with a model in front turned into ``--model``."""
    if not words or words[0].text.startswith("--"):
        return list(words)
    named = [w for w in words[1:] if w.text.partition("=")[0] in ("--model", "--model-path")]
    if named:
        problems.append(
            ReadProblem(
                problem=Problem.MODEL_TWICE,
                subject=named[0].text,
                message="the model is given in front and by a flag",
                positions=(*words[0].positions, *named[0].positions),
            )
        )
    return [Word(text="--model", positions=()), *words]


def _items(
    words: list[Word], orchestrator: Orchestrator, problems: list[ReadProblem]
) -> list[list[Word]]:
    """Return each flag with its values; a word that follows no flag is a problem."""
    items: list[list[Word]] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        name, equals, value = word.text.partition("=")
        if not name.startswith("--"):
            problems.append(
                ReadProblem(
                    problem=Problem.UNEXPECTED_WORD,
                    subject=word.text,
                    message=f"{word.text!r} belongs to no flag",
                    positions=word.positions,
                )
            )
            continue
        name = orchestrator.aliases.get(name, name)
        item = [Word(text=name, positions=word.positions)]
        if equals:
            item.append(Word(text=value, positions=()))
        else:
            many = name in orchestrator.multi_value_engine_flags
            while at < len(words) and not words[at].text.startswith("--"):
                item.append(words[at])
                at += 1
                if not many:
                    break
        items.append(item)
    return items
