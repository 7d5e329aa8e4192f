"""A published recipe as the catalogued release wants it written: renamed, superseded, left out."""

from collections.abc import Mapping
from typing import Final

from k31ctl.core.flags import FlagCatalog
from k31ctl.core.launch_form import find_call
from k31ctl.core.read_launch import read_launch
from k31ctl.core.recipe import Drift, Recipe
from k31ctl.core.write_launch import published_words
from k31ctl.serve.rollout import Departure
from k31ctl.values import frozen

_LEFT_OUT: Final = "leave it out"
_WITHOUT: Final = ", without "
_MODEL_FLAGS: Final = ("--model", "--model-path", "model_tag", "model_path")


@frozen
class CurrentRecipe:
    """Flags by their documented names and variables, with what had to change and why."""

    flags: dict[str, object]
    environment: dict[str, str]
    departures: tuple[Departure, ...]


def current_recipe(recipe: Recipe, catalog: FlagCatalog) -> CurrentRecipe:
    """Return the recipe for this release; what it wrote otherwise is told as a departure."""
    flags, environment = dict(recipe.flags), dict(recipe.environment)
    for drift in recipe.drift:
        if drift.subject.startswith("--"):
            flags = _rewritten(flags, drift)
        else:
            environment = _renamed(environment, drift)
    words = (*recipe.form.split(), *_model_words(recipe), *published_words(flags))
    call = find_call(words)
    assert call is not None
    read = read_launch(words, call, catalog)
    return CurrentRecipe(
        flags={s.flag: _short(s.value) for s in read.settings if s.flag not in _MODEL_FLAGS},
        environment=environment,
        departures=tuple(
            Departure(what=drift.subject, reason=f"{drift.note}; now: {drift.now}")
            for drift in recipe.drift
        ),
    )


def _short(value: object) -> object:
    """A whole number as one, so that it is written without a point."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _rewritten(flags: Mapping[str, object], drift: Drift) -> dict[str, object]:
    """Put what the release wants in the place of a flag that it refuses or is about to."""
    now, _, without = drift.now.partition(_WITHOUT)
    name, _, value = now.partition(" ")
    found: dict[str, object] = {}
    for flag, written in flags.items():
        if flag == drift.subject:
            if now != _LEFT_OUT:
                found[name] = value or written
        elif flag != without:
            found[flag] = written
    return found


def _renamed(environment: Mapping[str, str], drift: Drift) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name != drift.subject}
    if drift.subject in environment and drift.now != _LEFT_OUT:
        name, _, value = drift.now.partition("=")
        kept[name] = value
    return kept


def _model_words(recipe: Recipe) -> tuple[str, ...]:
    """The words of the published command between its form and its flags."""
    num_flags = len(published_words(recipe.flags))
    start = len(recipe.form.split())
    return recipe.words[start : len(recipe.words) - num_flags]
