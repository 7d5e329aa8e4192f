"""Every published recipe beside what is written for its cell: the same, or a reason."""

import pytest

from docs.generate_recipes import PAGE, Row, page, rows, server_for
from k31ctl.catalog.recipes import recipes_for
from k31ctl.core.launch_form import find_call
from k31ctl.core.read_launch import read_launch
from k31ctl.core.recipe import Recipe, Role
from k31ctl.core.rules import Severity
from k31ctl.serve.asked import Target
from k31ctl.serve.gather import ENGINES
from k31ctl.serve.launch_files import launch_files, rollout
from k31ctl.serve.own_findings import own_findings
from k31ctl.serve.rollout import NodeValue
from tests.core.catalogs import CATALOGS
from tests.serve.launches import NOWHERE, SIZES, STORE, asked, node_of, parts

RECIPES = [recipe for engine in ENGINES for recipe in recipes_for(STORE, engine=engine)]
REFUSED = ["vllm-gb200-dep16", "vllm-h200-tp16", "vllm-h100-tp32"]


@pytest.fixture(scope="module")
def every_row() -> dict[str, Row]:
    return {row.recipe.id: row for row in rows()}


@pytest.fixture(params=RECIPES, ids=lambda recipe: recipe.id)
def row(request: pytest.FixtureRequest, every_row: dict[str, Row]) -> Row:
    return every_row[request.param.id]


def test_the_table_is_the_page_in_the_docs() -> None:
    assert page() == PAGE.read_text(encoding="utf-8")


def test_all_recipes_are_in_the_table_and_three_do_not_fit(every_row: dict[str, Row]) -> None:
    assert len(every_row) == len(RECIPES) == 66
    refused = [name for name, row in every_row.items() if row.outcome.startswith("refused")]
    assert refused == REFUSED


def test_what_is_not_as_published_has_a_reason(row: Row) -> None:
    assert all(reason for _, reason in (*row.changed, *row.added))


def test_the_cell_of_a_recipe_starts_from_that_recipe(row: Row) -> None:
    if row.outcome.startswith("refused"):
        assert "serve-fits" in row.outcome
    elif row.recipe.nodes:
        assert row.outcome == "itself"
    else:
        assert row.outcome.startswith("from ")


def test_what_is_written_is_read_by_the_engine_without_a_problem(row: Row) -> None:
    if row.outcome.startswith("refused"):
        return
    server = server_for(row.recipe)
    for follower in (False, True):
        words = [
            w.at("1") if isinstance(w, NodeValue) else w
            for w in server.words("moonshotai/Kimi-K3", follower=follower)
        ]
        call = find_call(words)
        assert call is not None
        variables = {v.name: v.value if isinstance(v.value, str) else "x" for v in server.variables}
        read = read_launch(words, call, CATALOGS[row.recipe.engine], environment=variables)
        assert [p.message for p in read.problems] == []
        assert read.model == "moonshotai/Kimi-K3"


@pytest.mark.parametrize(
    "recipe",
    [r for r in RECIPES if r.nodes and r.role is Role.UNIFIED and r.id not in REFUSED],
    ids=lambda recipe: recipe.id,
)
def test_every_format_of_a_recipe_lints_clean(recipe: Recipe) -> None:
    on, nodes = node_of(recipe, recipe.hardware[0])
    gathered = parts(engine=recipe.engine, on=on)
    sizes = {size: recipe.layout.get(size, 1) for size in SIZES}
    if "--enable-expert-parallel" in recipe.flags and recipe.engine == "vllm":
        sizes["ep"] = sizes["tp"] * sizes["dp"]
    for target in (Target.SHELL, Target.SLURM, Target.COMPOSE, Target.KUBERNETES):
        wish = asked(nodes=nodes, target=target, image="registry.example/engine:1", **sizes)
        made = rollout(gathered, wish, NOWHERE)
        found = own_findings(STORE, gathered, launch_files(made, target), made)
        assert [f.message for f in found if f.severity is not Severity.INFO] == []
