"""Matrix products with a checkpoint's weights, and the norms and activations around them.

T tokens, I inputs, O outputs, D width.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from k31ctl.engine.config import Activation
from k31ctl.engine.tensors import Target, Tensors

# Rows that oneDNN orders the weights for: measured as good for one row as for hundreds.
_REORDERED_FOR_ROWS = 512


class Linear:
    """``x Wᵀ`` with one matrix, or with several that read the same input, one above the other."""

    def __init__(self, weights: Sequence[Tensor], target: Target) -> None:
        whole_OI = weights[0] if len(weights) == 1 else torch.cat(list(weights))
        whole_OI = target.weight(whole_OI).contiguous()
        self.widths = [len(weight) for weight in weights]
        self.reordered = reorders(target) and not whole_OI.is_meta
        self._weight = _reordered(whole_OI) if self.reordered else whole_OI
        self._row_weight = whole_OI if not self.reordered or rows_are_slow() else None

    def __call__(self, x_TI: Tensor) -> Tensor:
        """The product."""
        if self._row_weight is not None and (len(x_TI) == 1 or not self.reordered):
            return functional.linear(x_TI, self._row_weight)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x_TI, self._weight, None, "none", [], ""
        )
        return product

    def split(self, x_TI: Tensor) -> tuple[Tensor, ...]:
        """The outputs of each of the matrices."""
        parts: tuple[Tensor, ...] = self(x_TI).split(self.widths, dim=-1)
        return parts


def reorders(target: Target) -> bool:
    """Whether weights are kept in oneDNN's own order, which streams them two to four times faster.

    Products in float32 stay exact; in bfloat16 the processor must have the instructions.
    """
    if (
        not target.reordered
        or target.device.type != "cpu"
        or not torch.backends.mkldnn.is_available()
    ):
        return False
    if target.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(target.dtype == torch.float32)


def rows_are_slow() -> bool:
    """Whether a single row is better off with the weights as they were: so it is without AVX-512.

    Measured on Zen 3 with one thread: 11.4 GB/s of weights instead of 7.3 for one row, but 3.8
    instead of 5.5 for eight.
    A second copy of the weights is the price.
    """
    return "AVX512" not in torch.backends.cpu.get_cpu_capability()


def _reordered(weight_OI: Tensor) -> Tensor:
    found: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI, _REORDERED_FOR_ROWS)
    return found


def rms_norm(x_TD: Tensor, weight_D: Tensor, eps: float) -> Tensor:
    """``w x / sqrt(mean(x²) + eps)``, computed in float32 and rounded once."""
    return functional.rms_norm(x_TD.float(), x_TD.shape[-1:], weight_D, eps).to(x_TD.dtype)


def situ(gate: Tensor, up: Tensor, *, gate_bound: float, up_bound: float | None) -> Tensor:
    """``a tanh(g/a) sigmoid(g) * b tanh(u/b)`` in float32, rounded to the input's type.

    Symbols: a gate_bound, b up_bound (without it, u itself).
    Source: activation_situ_beta and activation_situ_linear_beta of Kimi K3.
    """
    g, u = gate.float(), up.float()
    if up_bound is not None:
        u = torch.tanh(u / up_bound) * up_bound
    return (torch.tanh(g / gate_bound) * gate_bound * torch.sigmoid(g) * u).to(gate.dtype)


def activate(activation: Activation, gate: Tensor, up: Tensor) -> Tensor:
    """The gated activation that a configuration names."""
    if activation.gate_bound is None:
        return functional.silu(gate) * up
    return situ(gate, up, gate_bound=activation.gate_bound, up_bound=activation.up_bound)


class GatedMlp:
    """``down(activation(gate x, up x))``: a dense layer, or the shared experts as one."""

    def __init__(
        self, tensors: Tensors, activation: Activation, *, hidden: int, width: int, target: Target
    ) -> None:
        gate = tensors.take("gate_proj.weight", width, hidden)
        up = tensors.take("up_proj.weight", width, hidden)
        self._gate_up = Linear([gate, up], target)
        self._down = Linear([tensors.take("down_proj.weight", hidden, width)], target)
        self._activation = activation

    def __call__(self, x_TD: Tensor) -> Tensor:
        """The output for each token."""
        gate, up = self._gate_up.split(x_TD)
        return self._down(activate(self._activation, gate, up))


Mlp = Callable[[Tensor], Tensor]
