"""The tensors that one linear layer becomes in each checkpoint format."""

from dataclasses import replace

from k31ctl.core.model import WeightFormat
from k31ctl.core.tensors import Group, TensorTemplate

MXFP4_GROUP = 32
FP8_BLOCK = 128


def stored(
    linear: TensorTemplate, weight_format: WeightFormat, *, scale_group: Group | None = None
) -> tuple[TensorTemplate, ...]:
    """The tensors of a linear layer given as a bf16 ``….weight`` of shape [out, in].

    Formats: compressed-tensors ``mxfp4-pack-quantized`` (two E2M1 values a byte, one E8M0 byte
    per 32), ``pack-quantized`` int4 (eight values an int32, one bf16 scale per 32, the shape as a
    tensor), and fp8 with one fp32 scale per 128 x 128 block.
    """
    out, width = linear.shape
    stem = linear.name.removesuffix(".weight")
    scales = replace(linear, params=0, group=scale_group or linear.group)
    match weight_format:
        case WeightFormat.BF16:
            return (linear,)
        case WeightFormat.MXFP4:
            values = replace(
                linear, name=f"{stem}.weight_packed", shape=(out, width // 2), dtype="U8"
            )
            scale = replace(
                scales,
                name=f"{stem}.weight_scale",
                shape=(out, width // MXFP4_GROUP),
                dtype="U8",
            )
            return (values, scale)
        case WeightFormat.INT4:
            values = replace(
                linear, name=f"{stem}.weight_packed", shape=(out, width // 8), dtype="I32"
            )
            scale = replace(scales, name=f"{stem}.weight_scale", shape=(out, width // MXFP4_GROUP))
            shape = replace(scales, name=f"{stem}.weight_shape", shape=(2,), dtype="I32")
            return (values, scale, shape)
        case WeightFormat.FP8_BLOCK:
            blocks = (-(-out // FP8_BLOCK), -(-width // FP8_BLOCK))
            scale = replace(scales, name=f"{stem}.weight_scale_inv", shape=blocks, dtype="F32")
            return (replace(linear, dtype="F8_E4M3"), scale)
