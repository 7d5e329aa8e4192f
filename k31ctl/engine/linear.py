"""Matrix products with a checkpoint's weights, and the norms and activations around them.

T tokens, I inputs, O outputs, D width.
"""

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from k31ctl.engine.config import Activation
from k31ctl.engine.kernels import choice
from k31ctl.engine.tensors import Kernels, Target, Tensors, joined

# Rows that oneDNN orders the weights for: measured as good for one row as for hundreds.
_REORDERED_FOR_ROWS = 512
# What float16 may lose of a matrix, over its largest value: nothing that float32 would notice.
_MOST_LOST = 2.0**-36
_LARGEST_EXPONENT = 15


class Form(StrEnum):
    """How a matrix is kept, and what multiplies with it."""

    HALF = "FBGEMM in float32, weights kept exactly as float16 times a power of two"
    REORDERED = "oneDNN, weights in its own order"
    PLAIN = "torch"


class Linear:
    """``x Wᵀ`` with one matrix, or with several that read the same input, one above the other."""

    def __init__(self, weights: Sequence[Tensor], target: Target) -> None:
        whole_OI = weights[0] if len(weights) == 1 else joined(weights)
        whole_OI = target.weight(whole_OI).contiguous()
        self.widths = [len(weight) for weight in weights]
        self.form, self._weight, self._unscale = _kept(whole_OI, target)
        itemsize = 2 if self.form is Form.HALF else whole_OI.itemsize
        self.num_bytes: int = whole_OI.numel() * itemsize
        target.forms[self.form] += 1

    def __call__(self, x_TI: Tensor) -> Tensor:
        """The product."""
        product: Tensor
        match self.form:
            case Form.HALF:
                product = torch.ops.quantized.linear_dynamic_fp16(x_TI, self._weight)
                product.mul_(self._unscale)
            case Form.REORDERED:
                product = torch.ops.mkldnn._linear_pointwise(
                    x_TI, self._weight, None, "none", [], ""
                )
            case Form.PLAIN:
                product = functional.linear(x_TI, self._weight)
        return product

    def split(self, x_TI: Tensor) -> tuple[Tensor, ...]:
        """The outputs of each of the matrices."""
        parts: tuple[Tensor, ...] = self(x_TI).split(self.widths, dim=-1)
        return parts


def _kept(weight_OI: Tensor, target: Target) -> tuple[Form, Any, Tensor | None]:
    """The fastest form that computes the same, the matrix in it, and the scale of products."""
    if weight_OI.is_meta or target.kernels is Kernels.PLAIN or target.device.type != "cpu":
        return Form.PLAIN, weight_OI, None
    is_float = target.dtype == torch.float32
    if is_float and (scaled := _halved(weight_OI)) is not None:
        return Form.HALF, *scaled
    has_mkldnn = torch.backends.mkldnn.is_available()
    if has_mkldnn and (is_float or torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        order = torch.ops.mkldnn._reorder_linear_weight
        return Form.REORDERED, order(weight_OI, _REORDERED_FOR_ROWS), None
    return Form.PLAIN, weight_OI, None


def _halved(weight_OI: Tensor) -> tuple[Any, Tensor] | None:
    """A matrix as FBGEMM reads it, where float16 holds it: so it does whatever was bf16 or MXFP4.

    Half the bytes of float32 are half the time where one token reads them all.
    """
    has_fbgemm = torch.backends.quantized.engine in {"x86", "fbgemm"}
    largest = float(weight_OI.abs().amax()) if weight_OI.numel() else 0.0
    if not has_fbgemm or not 2.0**-100 < largest < math.inf:
        return None
    scale = 2.0 ** (_LARGEST_EXPONENT - math.frexp(largest)[1])
    half_OI = (weight_OI * scale).half()
    if float((half_OI.float() / scale - weight_OI).abs().amax()) > largest * _MOST_LOST:
        return None
    return torch.ops.quantized.linear_prepack_fp16(half_OI.float(), None), torch.tensor(1 / scale)


def rms_norm(x_TD: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """``w x / sqrt(mean(x²) + eps)``, computed in float32 and rounded once."""
    return functional.rms_norm(x_TD.float(), x_TD.shape[-1:], weight_D, eps).to(x_TD.dtype)


def situ(
    gate: Tensor, up: Tensor, *, gate_bound: float = 4.0, up_bound: float | None = 25.0
) -> Tensor:
    """``a tanh(g/a) sigmoid(g) * b tanh(u/b)`` in float32, rounded to the input's type.

    Symbols: a gate_bound, b up_bound (without it, u itself).
    Source: activation_situ_beta and activation_situ_linear_beta of Kimi K3.
    """
    g, u = gate.float(), up.float()
    if up_bound is not None:
        u = torch.tanh(u / up_bound).mul_(up_bound)
    bounded = torch.tanh(g / gate_bound).mul_(gate_bound)
    return bounded.mul_(torch.sigmoid(g)).mul_(u).to(gate.dtype)


Activate = Callable[[Tensor, Tensor], Tensor]


def activation_of(activation: Activation, target: Target) -> Activate:
    """The gated activation that a configuration names, as a function of gate and up."""
    if activation.gate_bound is None:
        return _silu
    bounded: Callable[..., Tensor] = situ
    if choice(target).uses_triton:
        from k31ctl.engine.kernels import situ as kernel  # noqa: PLC0415 - imports Triton

        bounded = kernel.situ
    return partial(bounded, gate_bound=activation.gate_bound, up_bound=activation.up_bound)


def _silu(gate: Tensor, up: Tensor) -> Tensor:
    return functional.silu(gate) * up


class GatedMlp:
    """``down(activation(gate x, up x))``: a dense layer, or the shared experts as one."""

    def __init__(
        self, tensors: Tensors, activation: Activation, *, hidden: int, width: int, target: Target
    ) -> None:
        gate = tensors.take("gate_proj.weight", width, hidden)
        up = tensors.take("up_proj.weight", width, hidden)
        self._gate_up = Linear([gate, up], target)
        self._down = Linear([tensors.take("down_proj.weight", hidden, width)], target)
        self._activate = activation_of(activation, target)

    def __call__(self, x_TD: Tensor) -> Tensor:
        """The output for each token."""
        return self._down(self._activate(*self._gate_up.split(x_TD)))


Mlp = Callable[[Tensor], Tensor]
