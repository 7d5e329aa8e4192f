"""The image encoder: its sizes, and how many tokens an image becomes."""

from collections.abc import Mapping
from math import sqrt

from k31ctl.core.config_fields import ConfigFields
from k31ctl.core.model import Vision
from k31ctl.values import frozen

PATCH_LIMIT = 65_536
SIDE_LIMIT_PATCHES = 512
WORST_IMAGE = (1861, 7041)


@frozen
class ImageTokens:
    """What one image of a given size costs in the prompt, and how it is scaled and padded."""

    width: int
    height: int
    scaled_width: int
    scaled_height: int
    padded_width: int
    padded_height: int
    num_patches: int
    num_tokens: int


def image_tokens(vision: Vision, *, width: int, height: int) -> ImageTokens:
    """Tokens of one image, without the three markers and the size text around it.

    The image is scaled down to the patch budget and the side limit, never up, then padded to
    whole merged patches; padding counts.

    Formula: s = min(1, sqrt(65536 / (w//14 h//14)), 512*14/w, 512*14/h); pad to 28; (W/28)(H/28).
    Source: the release's media_proc_cfg; vLLM navit_resize_image and SGLang navit_resize_config.
    """
    p = vision.patch_size
    side = SIDE_LIMIT_PATCHES * p
    whole = max(1, width // p) * max(1, height // p)
    s = min(1.0, sqrt(PATCH_LIMIT / whole), side / width, side / height)
    scaled = [min(max(1, int(length * s)), side) for length in (width, height)]
    steps = (p * vision.merge_width, p * vision.merge_height)
    W, H = (-(-length // step) * step for length, step in zip(scaled, steps, strict=True))
    return ImageTokens(
        width=width,
        height=height,
        scaled_width=scaled[0],
        scaled_height=scaled[1],
        padded_width=W,
        padded_height=H,
        num_patches=(W // p) * (H // p),
        num_tokens=(W // steps[0]) * (H // steps[1]),
    )


def kimi_k3_vision(config: ConfigFields) -> Vision:
    """The MoonViT-V2 of Kimi K3; other towers are refused by the field that differs."""
    expected: dict[str, object] = {
        "mm_projector_type": "patchmergerv2",
        "norm_type": "rmsnorm",
        "attn_bias": False,
        "linear_bias": False,
        "patch_embed_proj_bias": False,
        "mlp_type": "mlp2",
    }
    return _vision(config, expected)


def kimi_k25_vision(config: ConfigFields) -> Vision:
    """The MoonViT of Kimi K2.5, with biases; other towers are refused by the field that differs."""
    return _vision(config, {"mm_projector_type": "patchmerger"})


def _vision(config: ConfigFields, expected: Mapping[str, object]) -> Vision:
    for field, value in expected.items():
        if config.values.get(field, value) != value:
            raise config.fail(field, f"is not {value!r}: this image encoder is not modelled")
    hidden = config.integer("vt_hidden_size", high=1 << 16)
    merge = config.integers("merge_kernel_size", low=1, high=16)
    if len(merge) != len(("height", "width")):
        raise config.fail("merge_kernel_size", "does not hold two numbers")
    return Vision(
        hidden_size=hidden,
        intermediate_size=config.integer("vt_intermediate_size", high=1 << 18),
        num_layers=config.integer("vt_num_hidden_layers", high=1024),
        num_heads=config.integer("vt_num_attention_heads", high=1024),
        qkv_hidden_size=config.integer_or(hidden, "qkv_hidden_size", low=1, high=1 << 16),
        patch_size=config.integer("patch_size", high=256),
        merge_height=merge[0],
        merge_width=merge[1],
    )
