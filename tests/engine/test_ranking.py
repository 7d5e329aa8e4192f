"""The highest of a row: the lowest index first among equals, whatever else is computed with it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from k31ctl.engine.blocks import latent_layer
from k31ctl.engine.config import Router
from k31ctl.engine.experts import route
from k31ctl.engine.latent_attention import selected_mask
from k31ctl.engine.ranking import highest, in_order
from tests.engine.runs import error
from tests.engine.test_blocks import latent_tensors, numbers

FEW_VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5])
ROWS = st.integers(1, 40).flatmap(
    lambda L: st.tuples(
        st.lists(st.lists(FEW_VALUES, min_size=L, max_size=L), min_size=1, max_size=5),
        st.integers(1, L),
    )
)


def stably_sorted(row: list[float], count: int) -> list[int]:
    return sorted(range(len(row)), key=lambda place: (-row[place], place))[:count]


@given(ROWS)
def test_of_equals_the_earliest_are_taken(case: tuple[list[list[float]], int]) -> None:
    rows, count = case
    expected = [stably_sorted(row, count) for row in rows]
    assert in_order(torch.tensor(rows), count).tolist() == expected
    taken = highest(torch.tensor(rows), count)
    assert taken.sort().values.tolist() == [sorted(row) for row in expected]


@given(ROWS)
def test_a_row_is_selected_from_the_same_alone_and_among_others(
    case: tuple[list[list[float]], int],
) -> None:
    row, count = case[0][0], case[1]
    alone = selected_mask(torch.tensor([row]), topk=count)
    among = selected_mask(torch.tensor([row] * 3), topk=count)
    assert torch.equal(alone[0], among[2])


def test_what_is_not_a_number_is_taken_so_that_it_shows() -> None:
    row = torch.tensor([[1.0, 0.0, 0.0, torch.nan, 0.0, 1.0]])
    assert sorted(highest(row, 4)[0].tolist()) == [0, 1, 3, 5]


def tied_tensors(seed: int) -> dict[str, Tensor]:
    """A latent layer of one index head: its score is exactly zero for about every second token."""
    tensors = latent_tensors(gated=True)
    head = {"wq_b": (16, 20), "weights_proj": (1, 40)}
    return tensors | {
        f"indexer.{name}.weight": numbers(*shape, seed=100 * seed + shape[0])
        for name, shape in head.items()
    }


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("pieces", [(1,) * 60, (7,) * 8 + (4,), (9, 1, 50)])
def test_tied_scores_choose_alike_at_once_in_pieces_and_token_by_token(
    seed: int, pieces: tuple[int, ...]
) -> None:
    tensors, x = tied_tensors(seed), numbers(60, 40, seed=seed)
    whole, _ = latent_layer(x, tensors, num_heads=4, index_topk=20)
    out, seen = [], None
    for part in x.split(pieces):
        said, seen = latent_layer(part, tensors, num_heads=4, index_topk=20, memory=seen)
        out.append(said)
    assert error(torch.cat(out), whole) < 1e-5


def test_equal_experts_and_groups_are_chosen_by_the_lowest_number() -> None:
    x, gate = numbers(3, 24), torch.zeros(896, 24)
    for groups, kept in ((1, 1), (8, 2)):
        router = Router(
            num_experts=896,
            num_chosen=16,
            num_groups=groups,
            num_chosen_groups=kept,
            renormalised=True,
            scale=1.0,
        )
        expert, _ = route(x, gate, torch.zeros(896), router)
        assert expert.tolist() == [list(range(16))] * 3
