"""The published recipes on their hardware: clean but for the drift that is written down."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from k31ctl.catalog.hardware import load_node
from k31ctl.catalog.recipes import recipes_for
from k31ctl.core.launch import Problem
from k31ctl.core.recipe import Recipe, Role
from k31ctl.core.rules import Finding, Severity, check
from k31ctl.core.rules.read_rules import READINGS
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import lint_files
from tests.core.catalogs import ENGINES, STORE
from tests.core.rule_contexts import context

NODES = {
    "B300": "8x-b300",
    "B200": "8x-b200",
    "GB300": "4x-gb300",
    "GB200": "4x-gb200",
    "H200": "8x-h200",
    "H100": "8x-h100",
    "MI350X": "8x-mi350x",
    "MI355X": "8x-mi355x",
}
RECIPES = [recipe for engine in ENGINES for recipe in recipes_for(STORE, engine=engine)]
WHOLE = {
    "vllm": next(r for r in RECIPES if r.id == "vllm-b300-tp8"),
    "sglang": next(
        r for r in RECIPES if r.engine == "sglang" and r.id == "sglang-b300-low-latency"
    ),
}


# Reports that speak against what is published, and that a reader of the recipe must know of.
AGAINST = {
    "vllm-pd-prefill-tep8": ["vllm-nixl-garbled"],
    "vllm-pd-decode-dep": ["vllm-nixl-garbled"],
}


def worse_than_notes(recipe: Recipe, hardware: str) -> list[Finding]:
    """Errors and warnings of a recipe; an addition is put upon a whole recipe of its engine."""
    words, environment = recipe.words, recipe.environment
    gpus = recipe.nodes * recipe.gpus_per_node
    if recipe.role is Role.OVERLAY:
        base = WHOLE[recipe.engine]
        flags = {**base.flags, **recipe.flags}
        whole = replace(base, flags=flags)
        words, environment, gpus = whole.words, {**base.environment, **environment}, 8
    on = NODES[hardware]
    asked = context(
        shlex.join(words),
        on=on,
        nodes=max(1, gpus // int(on[0])),
        environment=environment,
        published=True,
    )
    return [found for found in check(asked) if found.severity is not Severity.INFO]


def drift_of(recipe: Recipe) -> list[str]:
    """The ids of the findings that the documented drift of a recipe is told by."""
    told = [READINGS[Problem(drift.problem)] for drift in recipe.drift]
    return sorted(each.id for each in told if each.severity is not Severity.INFO)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
def test_a_published_recipe_is_clean_but_for_its_documented_drift(recipe: Recipe) -> None:
    for hardware in recipe.hardware or ("B300",):
        found = worse_than_notes(recipe, hardware)
        expected = sorted([*drift_of(recipe), *AGAINST.get(recipe.id, [])])
        if recipe.role is Role.OVERLAY:
            expected = []
        assert sorted(each.id for each in found) == expected, (hardware, found)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)
def test_a_published_recipe_as_a_script_has_no_error_but_its_drift(
    recipe: Recipe, tmp_path: Path
) -> None:
    own = recipe
    if recipe.role is Role.OVERLAY:
        base = WHOLE[recipe.engine]
        own = replace(base, flags={**base.flags, **recipe.flags})
    exports = [f"export {name}={shlex.quote(value)}" for name, value in own.environment.items()]
    path = tmp_path / "launch.sh"
    path.write_text("\n".join([*exports, shlex.join(own.words), ""]))
    on = NODES[(recipe.hardware or ("B300",))[0]]
    nodes = max(1, own.nodes * own.gpus_per_node // int(on[0]))
    asked = Asked(hardware=on, node=load_node(STORE, on), nodes=nodes)
    (found,) = lint_files(STORE, [str(path)], asked)
    errors = {each.id for each in found.findings if each.severity is Severity.ERROR}
    assert errors <= set(drift_of(recipe))


def test_the_table_of_the_recipes_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for recipe in RECIPES:
        hardware = (recipe.hardware or ("B300",))[0]
        found = worse_than_notes(recipe, hardware)
        rows.append((recipe.id, hardware, ", ".join(each.id for each in found) or "clean"))
    with capsys.disabled():
        print()  # noqa: T201
        for recipe_id, hardware, told in rows:
            print(f"{recipe_id:42} {hardware:8} {told}")  # noqa: T201
    assert sum(told == "clean" for _, _, told in rows) == 48
    assert len(rows) == 66
