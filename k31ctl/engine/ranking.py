"""Which entries of a row are the highest, and which of them come first among equals.

T rows, L entries of each, K of them taken.
"""

import torch
from torch import Tensor


def highest(score_TL: Tensor, count: int) -> Tensor:
    """Where the ``count`` highest of each row are, [T, K]; of equals the earliest are taken.

    What ``topk`` takes of equals is open, and differs with the shape of what it is given. Rows
    that it cuts between equals are cut again by counting. Minus infinity stands for no entry:
    which of those fill a row up stays open, as does the order of what is taken.
    """
    best = score_TL.topk(count, dim=-1)
    edge_T1, taken_TK = best.values[:, -1:], best.indices
    is_cut_T = (score_TL == edge_T1).sum(-1) > (best.values == edge_T1).sum(-1)
    is_cut_T &= edge_T1[:, 0] != -torch.inf
    if is_cut_T.any():
        taken_TK[is_cut_T] = _earliest(score_TL[is_cut_T], edge_T1[is_cut_T], count)
    return taken_TK


def in_order(score_TL: Tensor, count: int) -> Tensor:
    """The same, the highest first and the earliest first among equals.

    One more than asked for is taken, so that equals show, within and at the edge; only rows that
    have any are sorted whole.
    """
    best = score_TL.topk(min(count + 1, score_TL.shape[-1]), dim=-1)
    has_equals_T = (best.values[:, 1:] == best.values[:, :-1]).any(-1)
    taken_TK = best.indices[:, :count]
    if has_equals_T.any():
        ranked = score_TL[has_equals_T].sort(dim=-1, descending=True, stable=True)
        taken_TK[has_equals_T] = ranked.indices[:, :count]
    return taken_TK


def _earliest(score_TL: Tensor, edge_T1: Tensor, count: int) -> Tensor:
    """Everything above the edge, NaN with it, and of what is on it as many as there is room for."""
    is_above, is_edge = ~(score_TL <= edge_T1), score_TL == edge_T1
    room_T1 = count - is_above.sum(-1, keepdim=True)
    is_taken = is_above | (is_edge & (is_edge.cumsum(-1, dtype=torch.int32) <= room_T1))
    return is_taken.nonzero()[:, 1].view(-1, count)
