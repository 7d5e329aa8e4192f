"""What low-rank fine-tuning adds on each GPU, with the checkpoint's own weights frozen."""

from k31ctl.core.model import Model
from k31ctl.core.tensors import Group
from k31ctl.values import frozen

TARGETS = (Group.KDA_PROJECTIONS, Group.LATENT_ATTENTION, Group.SHARED_EXPERTS, Group.DENSE_MLP)
MATRIX_AXES = 2
ADAPTER_BYTES = 2
GRADIENT_BYTES = 2
OPTIMIZER_BYTES = 12


@frozen
class Finetune:
    """Memory of LoRA adapters of one rank, in bytes; ``per_gpu_bytes`` for one pipeline stage.

    Not counted: activations kept for the backward pass, which depend on batch and recomputation.
    """

    rank: int
    adapter_params: int
    adapter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    total_bytes: int
    per_gpu_bytes: int


def finetune(model: Model, *, rank: int, pp: int) -> Finetune:
    """Adapters on attention, shared experts and dense MLPs; routed experts stay frozen MXFP4.

    Each matrix [out, in] gets rank * (out + in) parameters: bf16 weight and gradient, and Adam's
    two moments and master weight in fp32. Every tensor-parallel rank keeps them whole.
    Source: LoRA, arXiv:2106.09685, section 4.1; Adam, arXiv:1412.6980.
    """
    params = sum(
        t.num_tensors * rank * sum(t.shape)
        for t in model.templates
        if t.group in TARGETS and len(t.shape) == MATRIX_AXES and t.params
    )
    total = params * (ADAPTER_BYTES + GRADIENT_BYTES + OPTIMIZER_BYTES)
    return Finetune(
        rank=rank,
        adapter_params=params,
        adapter_bytes=params * ADAPTER_BYTES,
        gradient_bytes=params * GRADIENT_BYTES,
        optimizer_bytes=params * OPTIMIZER_BYTES,
        total_bytes=total,
        per_gpu_bytes=-(-total // pp),
    )
