"""MoonViT-V2 and its projector: from the pixels of images to vectors in place of their tokens.

P patches of all images, one behind the other, row by row; M merged patches, which are tokens; H
heads, d their width, D width of the tower, T width of the text model.
Source: the formulas of the release's own tower, as NeMo AutoModel carries it.
"""

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from k31ctl.engine.images import PreparedImage
from k31ctl.engine.linear import Linear, rms_norm
from k31ctl.engine.tensors import Target, Tensors
from k31ctl.engine.vision_shape import TOWER_NORM_EPS, VisionShape

Grid: TypeAlias = tuple[int, int]  # rows and columns of patches
Turn: TypeAlias = tuple[Tensor, Tensor]  # cosine and sine of the angle of each pair, [P, 1, d/2]
_ROPE_BASE = 10_000.0
# Wider than the stream by four: rows that go through an MLP at once, so that 67,268 need no more.
_MLP_ROWS = 4096


class VisionEncoder:
    """The tower and its projector, from tensors under ``vision_tower.`` and ``mm_projector.``."""

    def __init__(self, tensors: Tensors, shape: VisionShape, target: Target) -> None:
        self.shape, self._target = shape, target
        sizes, T = shape.sizes, shape.text_hidden_size
        D, p = sizes.hidden_size, sizes.patch_size
        tower, projector = tensors.inside("vision_tower"), tensors.inside("mm_projector")
        patch = tower.take("patch_embed.proj.weight", D, 3, p, p)
        self._patch = Linear([patch.flatten(1)], target)
        table = tower.take("patch_embed.pos_emb.weight", shape.grid_height, shape.grid_width, D)
        self._position_YXD = target.exact(table)
        self._blocks = [
            VisionBlock(tower.inside(f"encoder.blocks.{number}"), shape, target)
            for number in range(sizes.num_layers)
        ]
        self._norm_D = target.exact(tower.take("encoder.final_layernorm.weight", D))
        merged = D * sizes.merge_height * sizes.merge_width
        self._first = Linear([projector.take("proj.0.weight", merged, merged)], target)
        self._second = Linear([projector.take("proj.2.weight", T, merged)], target)
        self._text_norm_T = target.exact(projector.take("post_norm.weight", T))

    def __call__(self, image: PreparedImage) -> Tensor:
        """The vectors of one image, [M, T], which depend on no other image."""
        with torch.inference_mode():
            patches, grid = patches_of(image, self.shape.sizes.patch_size)
            return self.encode(patches.to(self._target.device), [grid])

    def encode(self, patch_P3pp: Tensor, grids: Sequence[Grid]) -> Tensor:
        """The vectors of several images, [M, T]; pixels from -1 to 1, each image in its grid."""
        x_PD = self.tower(patch_P3pp, grids)
        h = self._second(functional.gelu(self._first(merged_patches(x_PD, grids, self.shape))))
        return rms_norm(h, self._text_norm_T, self.shape.projector_norm_eps)

    def tower(self, patch_P3pp: Tensor, grids: Sequence[Grid]) -> Tensor:
        """What the tower says of every patch, [P, D], in front of the merge."""
        x_PD = self._patch(patch_P3pp.flatten(1).to(self._target.dtype))
        position_PD = torch.cat([positions(self._position_YXD, grid) for grid in grids])
        x_PD = (x_PD.float() + position_PD).to(x_PD.dtype)
        d = self.shape.sizes.qkv_hidden_size // self.shape.sizes.num_heads
        angle_PR = torch.cat([rotations(grid, d, x_PD.device) for grid in grids])
        turn = (angle_PR.cos()[:, None], angle_PR.sin()[:, None])
        for block in self._blocks:
            x_PD = block(x_PD, turn, grids)
        return rms_norm(x_PD, self._norm_D, TOWER_NORM_EPS)


class VisionBlock:
    """One block of the tower: ``x += wo attention(norm0 x)``, ``x += fc1 gelu(fc0 norm1 x)``."""

    def __init__(self, tensors: Tensors, shape: VisionShape, target: Target) -> None:
        sizes = shape.sizes
        D, Q, F = sizes.hidden_size, sizes.qkv_hidden_size, sizes.intermediate_size
        self._num_heads = sizes.num_heads
        self._norm0_D = target.exact(tensors.take("norm0.weight", D))
        self._norm1_D = target.exact(tensors.take("norm1.weight", D))
        self._wqkv = Linear([tensors.take("wqkv.weight", 3 * Q, D)], target)
        self._wo = Linear([tensors.take("wo.weight", D, Q)], target)
        self._fc0 = Linear([tensors.take("mlp.fc0.weight", F, D)], target)
        self._fc1 = Linear([tensors.take("mlp.fc1.weight", D, F)], target)

    def __call__(self, x_PD: Tensor, turn: Turn, grids: Sequence[Grid]) -> Tensor:
        """The stream behind the block."""
        y = self._wqkv(rms_norm(x_PD, self._norm0_D, TOWER_NORM_EPS))
        q, k, v = y.view(len(y), 3, self._num_heads, -1).unbind(1)
        x_PD = x_PD + self._wo(attended(rotated(q, turn), rotated(k, turn), v, grids))
        y = rms_norm(x_PD, self._norm1_D, TOWER_NORM_EPS)
        parts = [
            self._fc1(functional.gelu(self._fc0(rows), approximate="tanh"))
            for rows in y.split(_MLP_ROWS)
        ]
        return x_PD + torch.cat(parts)


def patches_of(image: PreparedImage, patch_size: int) -> tuple[Tensor, Grid]:
    """Pixels of one image as patches [P, 3, p, p] from -1 to 1, in float32, and their grid.

    Formula: (v / 255 - 0.5) / 0.5; the padding is black, so -1.
    """
    p, height, width = patch_size, image.tokens.padded_height, image.tokens.padded_width
    rows, columns = height // p, width // p
    pixels = torch.frombuffer(bytearray(image.rgb), dtype=torch.uint8)
    patches = pixels.view(rows, p, columns, p, 3).permute(0, 2, 4, 1, 3).reshape(-1, 3, p, p)
    return (patches.float() / 255 - 0.5) / 0.5, (rows, columns)


def positions(table_YXD: Tensor, grid: Grid) -> Tensor:
    """The learned table at the places of a grid, [P, D]: bilinear, half-pixel centres."""
    if grid == table_YXD.shape[:2]:
        return table_YXD.flatten(0, 1)
    placed = functional.interpolate(
        table_YXD.permute(2, 0, 1)[None], size=grid, mode="bilinear", align_corners=False
    )
    return placed[0].permute(1, 2, 0).flatten(0, 1)


def rotations(grid: Grid, head_dim: int, device: torch.device) -> Tensor:
    """Angles of the pairs of a head at each patch, [P, d/2]: even pairs by column, odd by row.

    Formula: ``x θ_i, y θ_i`` by turns, ``θ_i = 10000^(-4i/d)``.
    """
    theta = _ROPE_BASE ** (-torch.arange(0, head_dim, 4, device=device).float() / head_dim)
    row_P = torch.arange(grid[0], device=device).repeat_interleave(grid[1])
    column_P = torch.arange(grid[1], device=device).repeat(grid[0])
    return torch.stack((column_P[:, None] * theta, row_P[:, None] * theta), dim=-1).flatten(1)


def rotated(x_PHd: Tensor, turn: Turn) -> Tensor:
    """Neighbouring channels turned as pairs, in float32 and rounded once."""
    (a, b), (cos, sin) = x_PHd.float().unflatten(-1, (-1, 2)).unbind(-1), turn
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2).to(x_PHd.dtype)


def attended(q_PHd: Tensor, k_PHd: Tensor, v_PHd: Tensor, grids: Sequence[Grid]) -> Tensor:
    """Attention among all patches of an image and to no other image, [P, H d]."""
    lengths = [rows * columns for rows, columns in grids]
    found = [
        functional.scaled_dot_product_attention(*(part.transpose(0, 1)[None] for part in parts))
        for parts in zip(*(x.split(lengths) for x in (q_PHd, k_PHd, v_PHd)), strict=True)
    ]
    return torch.cat([each[0].transpose(0, 1).flatten(1) for each in found])


def merged_patches(x_PD: Tensor, grids: Sequence[Grid], shape: VisionShape) -> Tensor:
    """Neighbours side by side, [M, 4 D] for two by two: left to right, then downwards."""
    down, across = shape.sizes.merge_height, shape.sizes.merge_width
    lengths = [rows * columns for rows, columns in grids]
    merged = [
        part.view(rows // down, down, columns // across, across, -1)
        .transpose(1, 2)
        .reshape(len(part) // (down * across), -1)
        for (rows, columns), part in zip(grids, x_PD.split(lengths), strict=True)
    ]
    return torch.cat(merged)
