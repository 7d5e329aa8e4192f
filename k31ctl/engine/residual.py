"""Attention Residuals: each sublayer reads a mix of block snapshots and the running sum.

T tokens, N rows to mix (snapshots first, the running sum last), D width.
"""

from functools import cached_property

import torch
from torch import Tensor

from k31ctl.engine.tensors import Target, Tensors


def residual_mix(rows_TND: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """Weigh the rows of each token by a softmax over their scores and add them up, [T, D].

    The rows are normalised for the score alone; what is mixed are the rows themselves. Scores,
    softmax and sum are float32 and rounded once. ``weight_D`` is norm times projection.

    Formula: e_i = sum_d v_i[d] w[d] / sqrt(mean(v_i²) + eps); p = softmax(e); sum_i p_i v_i
    Source: modeling_kimi_linear.py of the release, _apply_attn_res.
    """
    rows = rows_TND.float()
    score_TN = (rows @ weight_D) * torch.rsqrt(rows.square().mean(-1) + eps)
    return (score_TN.softmax(-1).unsqueeze(-2) @ rows).squeeze(-2).to(rows_TND.dtype)


class ResidualMix:
    """The mix in front of one sublayer, or of the final norm."""

    def __init__(
        self, tensors: Tensors, name: str, *, hidden: int, eps: float, target: Target
    ) -> None:
        norm, proj = f"{name}_norm.weight", f"{name}_proj.weight"
        if norm not in tensors:  # some conversions spell the same two so
            norm, proj = f"{name}.norm_weight", f"{name}.proj_weight"
        self._norm_D = target.exact(tensors.take(norm, hidden))
        self._proj_D = target.exact(tensors.take(proj, 1, hidden)[0])
        self._eps = eps

    @cached_property
    def _weight(self) -> Tensor:
        # When first needed, see ``joined``.
        return self._norm_D * self._proj_D

    def __call__(self, rows_TND: Tensor) -> Tensor:
        """The input of the sublayer."""
        return residual_mix(rows_TND, self._weight, self._eps)


class Stream:
    """What travels through the layers: snapshots of finished blocks and the sum since the last.

    Without blocks (Kimi Linear) it is an ordinary residual stream.
    """

    def __init__(
        self, live_TD: Tensor, *, most_snapshots: int, snapshots_TND: Tensor | None = None
    ) -> None:
        num_tokens, hidden = live_TD.shape
        self._rows_TND = live_TD.new_empty(num_tokens, most_snapshots + 1, hidden)
        self.num_snapshots = 0
        if snapshots_TND is not None:
            self.num_snapshots = snapshots_TND.shape[1]
            self._rows_TND[:, : self.num_snapshots] = snapshots_TND
        self.live_TD: Tensor | None = live_TD

    def move(self, device: torch.device) -> None:
        """Hand everything on to another device, where it is not there yet."""
        if self._rows_TND.device != device:
            self._rows_TND = self._rows_TND.to(device)
            self.live_TD = None if self.live_TD is None else self.live_TD.to(device)

    @property
    def snapshots(self) -> Tensor:
        """The snapshots so far, [T, N, D]."""
        return self._rows_TND[:, : self.num_snapshots]

    def mixed(self, mix: ResidualMix | None) -> Tensor:
        """The input of a sublayer."""
        if self.live_TD is None:
            raise ValueError("a block has begun and nothing was added to it")
        if mix is None or not self.num_snapshots:
            return self.live_TD
        self._rows_TND[:, self.num_snapshots] = self.live_TD
        return mix(self._rows_TND[:, : self.num_snapshots + 1])

    def close_block(self) -> None:
        """Keep the running sum as a snapshot; the next addition begins a new one."""
        if self.live_TD is not None:
            self._rows_TND[:, self.num_snapshots] = self.live_TD
        self.num_snapshots += 1
        self.live_TD = None

    def add(self, out_TD: Tensor) -> None:
        """Add the output of a sublayer."""
        self.live_TD = out_TD if self.live_TD is None else self.live_TD + out_TD
