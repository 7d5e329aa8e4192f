"""Each block as a function of plain tensors under the checkpoint's own names, for comparisons.

Sizes are read off the tensors; what a checkpoint's config.json alone knows is an argument, and
without it what Kimi K3 has, where that does not depend on the sizes. Inputs are the tokens of one
sequence, [T, D]; ``memory`` carries it on, and is None at its beginning.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from k31ctl.core.model import Indexer, LatentAttention, LinearAttention, Vision
from k31ctl.engine.config import Activation, MoeShape, Router
from k31ctl.engine.experts import MoeLayer
from k31ctl.engine.kda import KdaLayer
from k31ctl.engine.latent_attention import ABSORBED_UP_TO, LatentLayer
from k31ctl.engine.linear import GatedMlp
from k31ctl.engine.mxfp4 import dequantise, mxfp8_rounded
from k31ctl.engine.tensors import Target, Tensors
from k31ctl.engine.vision import Grid, VisionEncoder
from k31ctl.engine.vision_shape import VisionShape

__all__ = [
    "dense_mlp",
    "dequantise",
    "image_vectors",
    "kda_layer",
    "latent_layer",
    "moe_layer",
    "mxfp8_rounded",
]

Memory = tuple[Tensor, Tensor]

SITU = Activation(gate_bound=4.0, up_bound=25.0)


def kda_layer(
    x_TD: Tensor,
    tensors: Mapping[str, Tensor],
    *,
    eps: float = 1e-5,
    decay_bound: float | None = -5.0,
    memory: Memory | None = None,
) -> tuple[Tensor, Memory]:
    """KDA of the tensors under ``self_attn.``: output, and (last inputs [J, E], state [H, K, V]).

    A gate of full rank is told by ``g_proj``; ``decay_bound`` is gate_lower_bound or None.
    """
    H, d = len(tensors["b_proj.weight"]), len(tensors["o_norm.weight"])
    J = tensors["q_conv1d.weight"].shape[-1]
    shape = LinearAttention(
        num_heads=H, head_dim=d, conv_kernel_size=J, full_rank_gate="g_proj.weight" in tensors
    )
    layer = KdaLayer(
        _named(tensors),
        shape,
        hidden=x_TD.shape[-1],
        eps=eps,
        decay_bound=decay_bound,
        target=_target(x_TD),
    )
    if memory is None:
        memory = (x_TD.new_zeros(J - 1, 3 * H * d), x_TD.new_zeros(H, d, d, dtype=torch.float32))
    conv, state = (part.clone() for part in memory)
    return layer(x_TD[None], conv[None], state[None])[0], (conv, state)


def latent_layer(
    x_TD: Tensor,
    tensors: Mapping[str, Tensor],
    *,
    num_heads: int,
    index_topk: int | None = None,
    index_norm_eps: float = 1e-5,
    absorbed: bool | None = None,
    memory: Memory | None = None,
) -> tuple[Tensor, Memory]:
    """Latent attention of the tensors under ``self_attn.``: the output, and what is cached.

    The memory is (latents [L, R + P], index keys [L, X]). The output gate is told by ``g_proj``, a
    q-LoRA by ``q_a_proj``, an indexer by ``indexer.wk``. ``absorbed`` picks one of the two forms.
    """
    shape, indexer = _latent_shape(tensors, num_heads), None
    if "indexer.wk.weight" in tensors:
        if index_topk is None:
            raise ValueError("an indexer needs its index_topk")
        X = len(tensors["indexer.wk.weight"])
        Y = len(tensors["indexer.weights_proj.weight"])
        indexer = Indexer(num_heads=Y, head_dim=X, topk=index_topk)
    layer = LatentLayer(
        _named(tensors),
        shape,
        indexer,
        hidden=x_TD.shape[-1],
        index_norm_eps=index_norm_eps,
        target=_target(x_TD),
    )
    if absorbed is None:
        absorbed = len(x_TD) <= ABSORBED_UP_TO
    new = layer.project(x_TD, absorbed=absorbed)
    key_TX = new.entry_TC[:, :0] if new.index_key_TX is None else new.index_key_TX
    seen = (new.entry_TC, key_TX)
    if memory is not None:
        seen = (torch.cat((memory[0], seen[0])), torch.cat((memory[1], seen[1])))
    out = layer.attend(new, slice(None), *seen)
    return layer.finish(out, new), seen


def _latent_shape(tensors: Mapping[str, Tensor], num_heads: int) -> LatentAttention:
    Q = len(tensors["q_a_layernorm.weight"]) if "q_a_layernorm.weight" in tensors else None
    R = len(tensors["kv_a_layernorm.weight"])
    P = len(tensors["kv_a_proj_with_mqa.weight"]) - R
    query = tensors["q_proj.weight" if Q is None else "q_b_proj.weight"]
    return LatentAttention(
        num_heads=num_heads,
        q_lora_rank=Q,
        kv_lora_rank=R,
        qk_nope_head_dim=len(query) // num_heads - P,
        qk_rope_head_dim=P,
        v_head_dim=tensors["o_proj.weight"].shape[1] // num_heads,
        output_gate="g_proj.weight" in tensors,
    )


def moe_layer(
    x_TD: Tensor,
    tensors: Mapping[str, Tensor],
    *,
    router: Router,
    activation: Activation = SITU,
    eps: float = 1e-5,
    packed: bool = False,
) -> Tensor:
    """The tensors under ``block_sparse_moe.``; ``packed`` multiplies from MXFP4 as it is stored.

    A latent is told by ``routed_expert_down_proj``, its norm by ``routed_expert_norm``.
    """
    down, norm = "routed_expert_down_proj.weight", "routed_expert_norm.weight"
    shared = "shared_experts.gate_proj.weight"
    first = "experts.0.w1.weight"
    rows = tensors[first if first in tensors else f"{first}_packed"]
    shape = MoeShape(
        hidden=x_TD.shape[-1],
        latent=len(tensors[down]) if down in tensors else None,
        latent_normed=norm in tensors,
        expert_width=len(rows),
        shared_width=len(tensors[shared]) if shared in tensors else 0,
        router=router,
        activation=activation,
        norm_eps=eps,
    )
    return MoeLayer(_named(tensors), shape, _target(x_TD), packed=packed)(x_TD)


def dense_mlp(x_TD: Tensor, tensors: Mapping[str, Tensor], *, activation: Activation) -> Tensor:
    """The tensors under ``mlp.`` or ``shared_experts.``."""
    width = len(tensors["gate_proj.weight"])
    layer = GatedMlp(
        _named(tensors), activation, hidden=x_TD.shape[-1], width=width, target=_target(x_TD)
    )
    return layer(x_TD)


def image_vectors(
    patch_P3pp: Tensor,
    tensors: Mapping[str, Tensor],
    *,
    grids: Sequence[Grid],
    num_heads: int,
    merge: Grid = (2, 2),
    projector_norm_eps: float = 1e-5,
) -> Tensor:
    """What images become, [M, T], by the tensors under ``vision_tower.`` and ``mm_projector.``.

    Pixels go from -1 to 1; a grid is the rows and columns of patches of one image.
    """
    table = tensors["vision_tower.patch_embed.pos_emb.weight"]
    block, number = "vision_tower.encoder.blocks.{}.wqkv.weight", 0
    while block.format(number) in tensors:
        number += 1
    sizes = Vision(
        hidden_size=table.shape[-1],
        intermediate_size=len(tensors["vision_tower.encoder.blocks.0.mlp.fc0.weight"]),
        num_layers=number,
        num_heads=num_heads,
        qkv_hidden_size=len(tensors[block.format(0)]) // 3,
        patch_size=patch_P3pp.shape[-1],
        merge_height=merge[0],
        merge_width=merge[1],
    )
    shape = VisionShape(
        sizes=sizes,
        grid_height=table.shape[0],
        grid_width=table.shape[1],
        text_hidden_size=len(tensors["mm_projector.post_norm.weight"]),
        projector_norm_eps=projector_norm_eps,
        media_pad=0,  # there is no prompt here
    )
    return VisionEncoder(_named(tensors), shape, _target(patch_P3pp)).encode(patch_P3pp, grids)


def _named(tensors: Mapping[str, Tensor]) -> Tensors:
    return Tensors(tensors.__getitem__, tensors)


def _target(x_TD: Tensor) -> Target:
    return Target(dtype=x_TD.dtype, device=x_TD.device)
