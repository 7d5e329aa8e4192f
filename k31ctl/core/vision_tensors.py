"""Which tensors the image encoder and its projector have."""

from collections.abc import Mapping
from math import prod

from k31ctl.core.config_fields import ConfigFields
from k31ctl.core.model import Vision
from k31ctl.core.tensors import Group, Place, Shard, TensorTemplate

Shapes = Mapping[str, tuple[int, ...]]


def kimi_k3_vision_templates(
    config: ConfigFields, vision: Vision, *, text_hidden_size: int
) -> list[TensorTemplate]:
    """MoonViT-V2 and its projector: root-mean-square norms and no biases.

    Symbols: D width, Q width of queries, keys and values, F width of the MLP, M merged patch.
    """
    D, F, Q = vision.hidden_size, vision.intermediate_size, vision.qkv_hidden_size
    M = D * vision.merge_height * vision.merge_width
    tower: Shapes = {
        **_patches(config, vision),
        "encoder.final_layernorm.weight": (D,),
    }
    block: Shapes = {
        "norm0.weight": (D,),
        "norm1.weight": (D,),
        "wqkv.weight": (3 * Q, D),
        "wo.weight": (D, Q),
        "mlp.fc0.weight": (F, D),
        "mlp.fc1.weight": (D, F),
    }
    projector: Shapes = {
        "proj.0.weight": (M, M),
        "proj.2.weight": (text_hidden_size, M),
        "post_norm.weight": (text_hidden_size,),
    }
    return _templates(tower, block, projector, num_blocks=vision.num_layers)


def kimi_k25_vision_templates(
    config: ConfigFields, vision: Vision, *, text_hidden_size: int
) -> list[TensorTemplate]:
    """MoonViT and its projector: layer norms, and a bias beside every weight."""
    D, F, Q = vision.hidden_size, vision.intermediate_size, vision.qkv_hidden_size
    M = D * vision.merge_height * vision.merge_width
    tower: Shapes = {
        **_patches(config, vision),
        "patch_embed.proj.bias": (D,),
        **_with_bias({"encoder.final_layernorm": (D,)}),
    }
    block = _with_bias(
        {
            "norm0": (D,),
            "norm1": (D,),
            "wqkv": (3 * Q, D),
            "wo": (D, Q),
            "mlp.fc0": (F, D),
            "mlp.fc1": (D, F),
        }
    )
    projector = _with_bias({"pre_norm": (D,), "proj.0": (M, M), "proj.2": (text_hidden_size, M)})
    return _templates(tower, block, projector, num_blocks=vision.num_layers)


def _patches(config: ConfigFields, vision: Vision) -> Shapes:
    p = vision.patch_size
    height = config.integer("init_pos_emb_height", high=1 << 14)
    width = config.integer("init_pos_emb_width", high=1 << 14)
    return {
        "patch_embed.proj.weight": (vision.hidden_size, 3, p, p),
        "patch_embed.pos_emb.weight": (height, width, vision.hidden_size),
    }


def _with_bias(modules: Shapes) -> Shapes:
    found: dict[str, tuple[int, ...]] = {}
    for name, shape in modules.items():
        found |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return found


def _templates(
    tower: Shapes, block: Shapes, projector: Shapes, *, num_blocks: int
) -> list[TensorTemplate]:
    repeated = "vision_tower.encoder.blocks.{expert}."
    return [
        *(_tensor(f"vision_tower.{name}", shape, Group.VISION) for name, shape in tower.items()),
        *(
            _tensor(repeated + name, shape, Group.VISION, num_blocks=num_blocks)
            for name, shape in block.items()
        ),
        *(
            _tensor(f"mm_projector.{name}", shape, Group.PROJECTOR)
            for name, shape in projector.items()
        ),
    ]


def _tensor(
    name: str, shape: tuple[int, ...], group: Group, *, num_blocks: int = 0
) -> TensorTemplate:
    """A tensor of the encoder; its blocks are counted like experts, with ``{expert}`` the block."""
    return TensorTemplate(
        name=name,
        shape=shape,
        dtype="BF16",
        group=group,
        shard=Shard.REPLICATED,
        params=prod(shape),
        place=Place.FIRST,
        num_experts=num_blocks,
        active=False,
    )
