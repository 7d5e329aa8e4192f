"""The image encoder as config.json describes it, and proof that images are prepared as it wants."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from k31ctl.catalog.json_text import read_json_config
from k31ctl.core.config_fields import MISSING, ConfigFields
from k31ctl.core.model import Vision
from k31ctl.core.vision import PATCH_LIMIT, SIDE_LIMIT_PATCHES, kimi_k3_vision
from k31ctl.values import frozen

# The release writes RMSNorm(width) in its tower, without an eps, and PyTorch then takes float32's
# epsilon whatever the input's type. mlx-vlm takes bfloat16's, 2^-7; the configuration says nothing.
TOWER_NORM_EPS: Final = 2.0**-23
_PROJECTOR_NORM_EPS: Final = 1e-5

_PREPROCESSOR: Final = "preprocessor_config.json"
# What one value of each field means is computed here; another value is refused by its name.
_TOWER: Final[Mapping[str, object]] = {
    "activation_func": "gelu_pytorch_tanh",
    "merge_type": "sd2_tpool",
    "pos_emb_interpolation_mode": "bilinear",
    "pos_emb_type": "divided_fixed",
    "projector_hidden_act": "gelu",
}
_IMAGES: Final[Mapping[str, object]] = {
    "fixed_output_tokens": None,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "in_patch_limit": PATCH_LIMIT,
    "patch_limit_on_one_side": SIDE_LIMIT_PATCHES,
    "transparent_bg_fill_stage": "after_resize",
}


@frozen
class VisionShape:
    """A tower and its projector; the table of positions is ``grid_height`` by ``grid_width``."""

    sizes: Vision
    grid_height: int
    grid_width: int
    text_hidden_size: int
    projector_norm_eps: float
    media_pad: int


def vision_shape(config: Mapping[str, object], *, where: str) -> VisionShape | None:
    """Read the MoonViT-V2 of a configuration; None where it has no image encoder.

    Raises InputError for a field whose value is not computed.
    """
    fields = ConfigFields(config, where=where)
    tower = fields.child_or_none("vision_config")
    if tower is None:
        return None
    _refuse_others(tower, _TOWER)
    sizes = kimi_k3_vision(tower)
    if sizes.qkv_hidden_size % (4 * sizes.num_heads):
        raise tower.fail(
            "qkv_hidden_size", "is no multiple of 4 for each head, which rotations need"
        )
    eps = tower.raw("projector_ln_eps")
    if eps is MISSING:
        eps = _PROJECTOR_NORM_EPS
    if isinstance(eps, bool) or not isinstance(eps, int | float):
        raise tower.fail("projector_ln_eps", "is not a number")
    return VisionShape(
        sizes=sizes,
        grid_height=tower.integer("init_pos_emb_height", high=1 << 14),
        grid_width=tower.integer("init_pos_emb_width", high=1 << 14),
        text_hidden_size=fields.child("text_config").integer("hidden_size", high=1 << 17),
        projector_norm_eps=float(eps),
        media_pad=fields.integer("media_placeholder_token_id"),
    )


def refuse_other_images(folder: Path, sizes: Vision) -> None:
    """Refuse a preprocessor_config.json that scales, pads or colours images in another way.

    A checkpoint without one is taken to want what the release wants.
    """
    path = folder / _PREPROCESSOR
    if not path.exists():
        return
    document, where = read_json_config(path)
    rules = ConfigFields(document, where=where).child_or_none("media_proc_cfg")
    if rules is None:
        return
    _refuse_others(rules, {**_IMAGES, "patch_size": sizes.patch_size})
    merge = [sizes.merge_height, sizes.merge_width]
    if rules.values.get("merge_kernel_size", merge) not in (merge, merge[0]):
        raise rules.fail("merge_kernel_size", f"is not {merge}, as in config.json")


def _refuse_others(fields: ConfigFields, expected: Mapping[str, object]) -> None:
    for name, value in expected.items():
        if fields.values.get(name, value) != value:
            raise fields.fail(name, f"is not {value!r}, and nothing else is computed")
