"""The mixture of experts: which experts see which token, and what they add.

T tokens, D width, L width of the routed experts, E experts, K experts per token, I expert width.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor

from k31ctl.engine.config import MoeShape, Router
from k31ctl.engine.kernels import choice
from k31ctl.engine.linear import Activate, GatedMlp, Linear, activation_of, rms_norm
from k31ctl.engine.mxfp4 import GROUP, PackedLinear, dequantise
from k31ctl.engine.ranking import highest, in_order
from k31ctl.engine.streamed import ExpertStore, StreamedExperts, one_by_one
from k31ctl.engine.tensors import Target, Tensors
from k31ctl.errors import InputError

_TINY = 1e-20
_MANY_ROWS = 1024


def route(x_TD: Tensor, gate_ED: Tensor, bias_E: Tensor, router: Router) -> tuple[Tensor, Tensor]:
    """Pick K experts per token and weigh them, in float32.

    The bias steers which experts are chosen and is left out of their weights. With several groups
    only the groups with the best two biased scores in sum take part. The best expert comes first;
    of equal ones, as of equal groups, the lowest number.

    Returns (expert_TK int64, weight_TK float32).
    Source: DeepSeek-V3, arXiv:2412.19437, section 2.1.2.
    """
    score_TE = torch.sigmoid(x_TD.float() @ gate_ED.float().T)
    biased_TE = score_TE + bias_E
    if router.num_groups > 1:
        grouped = biased_TE.unflatten(-1, (router.num_groups, -1))
        group_score = grouped.topk(2, dim=-1).values.sum(-1)
        kept = highest(group_score, router.num_chosen_groups)
        dropped = torch.ones_like(group_score, dtype=torch.bool).scatter(-1, kept, value=False)
        biased_TE = grouped.masked_fill(dropped[..., None], -torch.inf).flatten(-2)
    expert_TK = in_order(biased_TE, router.num_chosen)
    weight_TK = score_TE.gather(-1, expert_TK)
    if router.renormalised:
        weight_TK = weight_TK / (weight_TK.sum(-1, keepdim=True) + _TINY)
    return expert_TK, weight_TK * router.scale


class Expert:
    """One routed expert: w1 is the gate, w3 the way up, w2 the way down.

    Whether it is packed is seen from its own tensors, whatever the configuration says; where only
    some of them are, those are spelled out.
    """

    def __init__(
        self,
        tensors: Tensors,
        *,
        hidden: int,
        width: int,
        activate: Activate,
        target: Target,
        packed: bool,
    ) -> None:
        shapes = {"w1": (width, hidden), "w3": (width, hidden), "w2": (hidden, width)}
        self._activate = activate
        self.gate_up: Linear
        self.down: Linear
        if packed and all(f"{name}.weight_packed" in tensors for name in shapes):
            parts = {name: _packed(tensors, name, *shape) for name, shape in shapes.items()}
            self.gate_up = PackedLinear([parts["w1"], parts["w3"]], target)
            self.down = PackedLinear([parts["w2"]], target)
            return
        plain = {name: _plain(tensors, name, *shape) for name, shape in shapes.items()}
        self.gate_up = Linear([plain["w1"], plain["w3"]], target)
        self.down = Linear([plain["w2"]], target)

    @property
    def num_bytes(self) -> int:
        """Bytes of its matrices."""
        return self.gate_up.num_bytes + self.down.num_bytes

    def __call__(self, z_TL: Tensor) -> Tensor:
        """What it says of each token."""
        return self.down(self._activate(*self.gate_up.split(z_TL)))


class ResidentExperts:
    """Experts in memory.

    Where an expert has few rows, calls cost as much as products: then what follows a product is
    done for the rows of all experts at once. With many rows that would only take memory.
    """

    def __init__(self, experts: list[Expert], activate: Activate) -> None:
        self._experts, self._activate = experts, activate

    def __call__(self, z_NL: Tensor, counts: list[int]) -> Tensor:
        """What the experts say of rows that are sorted by expert."""
        if len(z_NL) > _MANY_ROWS:
            return one_by_one(self._experts, z_NL, counts)
        seen = [expert for expert, count in zip(self._experts, counts, strict=False) if count]
        rows = [count for count in counts if count]
        raised = _products([expert.gate_up for expert in seen], z_NL.split(rows))
        inner = self._activate(*raised.chunk(2, dim=-1))
        return _products([expert.down for expert in seen], inner.split(rows))


def _products(matrices: list[Linear], parts: Sequence[Tensor]) -> Tensor:
    return torch.cat([matrix(part) for matrix, part in zip(matrices, parts, strict=True)])


class GroupedExperts:
    """Packed experts one behind the other, for kernels that compute with all of them at once."""

    def __init__(self, experts: list[Expert], activate: Activate) -> None:
        self._activate = activate
        self._gate_up, self._down = (
            _stacked([expert.gate_up for expert in experts]),
            _stacked([expert.down for expert in experts]),
        )

    def __call__(self, z_NL: Tensor, counts: list[int]) -> Tensor:
        """The same."""
        from k31ctl.engine.kernels.mxfp4 import grouped  # noqa: PLC0415 - imports Triton

        raised = grouped(z_NL, *self._gate_up, counts)
        inner = self._activate(*raised.chunk(2, dim=-1))
        return grouped(inner, *self._down, counts)


def _stacked(matrices: list[Linear]) -> tuple[Tensor, Tensor]:
    packed = [matrix for matrix in matrices if isinstance(matrix, PackedLinear)]
    if len(packed) < len(matrices):
        raise InputError(
            "these experts are not in MXFP4",
            where="packed experts",
            remedy="load them without keeping them packed",
        )
    return torch.stack([m.packed_RP for m in packed]), torch.stack([m.scale_RG for m in packed])


Experts: TypeAlias = ResidentExperts | StreamedExperts | GroupedExperts


def _packed(tensors: Tensors, name: str, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    return (
        tensors.take(f"{name}.weight_packed", rows, columns // 2),
        tensors.take(f"{name}.weight_scale", rows, columns // GROUP),
    )


def _plain(tensors: Tensors, name: str, rows: int, columns: int) -> Tensor:
    if f"{name}.weight_packed" not in tensors:
        return tensors.take(f"{name}.weight", rows, columns)
    packed, scale = _packed(tensors, name, rows, columns)
    if packed.is_meta:
        return packed.new_empty(rows, columns, dtype=torch.float32)
    return dequantise(packed, scale, dtype=torch.float32)


class MoeLayer:
    """Router, routed experts at their own width, and the shared experts that see every token."""

    def __init__(
        self,
        tensors: Tensors,
        shape: MoeShape,
        target: Target,
        *,
        packed: bool = False,
        store: ExpertStore | None = None,
    ) -> None:
        D, E, L = shape.hidden, shape.router.num_experts, shape.latent or shape.hidden
        self._shape = shape
        self._gate_ED = target.exact(tensors.take("gate.weight", E, D))
        self._bias_E = target.exact(tensors.take("gate.e_score_correction_bias", E))
        self._to_latent = self._from_latent = self._norm_L = self._shared = None
        if shape.latent is not None:
            down = tensors.take("routed_expert_down_proj.weight", L, D)
            up = tensors.take("routed_expert_up_proj.weight", D, L)
            self._to_latent, self._from_latent = Linear([down], target), Linear([up], target)
            if shape.latent_normed:
                self._norm_L = target.exact(tensors.take("routed_expert_norm.weight", L))
        if shape.shared_width:
            self._shared = GatedMlp(
                tensors.inside("shared_experts"),
                shape.activation,
                hidden=D,
                width=shape.shared_width,
                target=target,
            )
        width, inside = shape.expert_width, tensors.inside("experts")
        if store is not None:
            target = replace(target, forms=Counter())  # what comes and goes is not counted
        activate = activation_of(shape.activation, target)
        build = partial(
            Expert, hidden=L, width=width, activate=activate, target=target, packed=packed
        )
        self._experts: Experts
        if store is None:
            is_grouped = packed and choice(target).uses_triton
            gathered = GroupedExperts if is_grouped else ResidentExperts
            self._experts = gathered([build(inside.inside(str(e))) for e in range(E)], activate)
        else:
            self._experts = store.layer(inside.prefix, build, self._guess, target, packed=packed)

    def _guess(self, x_TD: Tensor) -> Tensor:
        """The experts that these tokens would choose here."""
        x_TD = x_TD.to(self._gate_ED.device)
        return route(x_TD, self._gate_ED, self._bias_E, self._shape.router)[0]

    def __call__(self, x_TD: Tensor) -> Tensor:
        """What the experts add to each token."""
        expert_TK, weight_TK = route(x_TD, self._gate_ED, self._bias_E, self._shape.router)
        if isinstance(self._experts, StreamedExperts):
            self._experts.expect(x_TD)
        z_TL = x_TD if self._to_latent is None else self._to_latent(x_TD)
        y_TL = routed_sum(z_TL, expert_TK, weight_TK, self._experts)
        if self._norm_L is not None:
            y_TL = rms_norm(y_TL, self._norm_L, self._shape.norm_eps)
        y_TD = y_TL if self._from_latent is None else self._from_latent(y_TL)
        return y_TD if self._shared is None else y_TD + self._shared(x_TD)


def routed_sum(z_TL: Tensor, expert_TK: Tensor, weight_TK: Tensor, experts: Experts) -> Tensor:
    """The weighted sum of what each token's experts say, [T, L].

    Each expert sees its tokens at once; a token's sum runs in the order of its choice, in float32,
    so that it does not depend on what else is in the batch.
    """
    T, K = expert_TK.shape
    flat = expert_TK.flatten()
    order, counts = flat.argsort(stable=True), torch.bincount(flat).tolist()
    said_TKL = experts(z_TL[order // K], counts)[order.argsort()].view(T, K, -1)
    return (said_TKL.float() * weight_TK[..., None]).sum(1).to(z_TL.dtype)
