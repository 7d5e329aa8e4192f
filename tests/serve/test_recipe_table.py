"""Every published recipe beside what is written for its cell: the same, or a reason."""

import pytest

from docs.generate_recipes import PAGE, Row, page, rows

ROWS = rows()
EVERY_ROW = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.recipe.id)


def test_the_table_is_the_page_in_the_docs() -> None:
    assert page() == PAGE.read_text(encoding="utf-8")


def test_all_recipes_are_in_the_table_and_three_do_not_fit() -> None:
    assert len(ROWS) == 66
    refused = [row.recipe.id for row in ROWS if row.outcome.startswith("refused")]
    assert refused == ["vllm-gb200-dep16", "vllm-h200-tp16", "vllm-h100-tp32"]


@EVERY_ROW
def test_what_is_not_as_published_has_a_reason(row: Row) -> None:
    assert all(reason for _, reason in (*row.changed, *row.added))


@EVERY_ROW
def test_the_cell_of_a_recipe_starts_from_that_recipe(row: Row) -> None:
    if row.outcome.startswith("refused"):
        assert "serve-fits" in row.outcome
    elif row.recipe.nodes:
        assert row.outcome == "itself"
    else:
        assert row.outcome.startswith("from ")
