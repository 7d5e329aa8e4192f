"""Which format a configuration says its weights are stored in, and what is refused by name."""

from k31ctl.core.config_fields import MISSING, ConfigFields
from k31ctl.core.linear_layers import FP8_BLOCK, MXFP4_GROUP
from k31ctl.core.model import Experts, WeightFormat

_COMPRESSED = {
    ("mxfp4-pack-quantized", "float"): WeightFormat.MXFP4,
    ("pack-quantized", "int"): WeightFormat.INT4,
}
_KEPT_BF16 = ("self_attn", "shared_experts", "lm_head")
_REMEDY = "modelled are bf16, fp8 in 128 x 128 blocks, mxfp4-pack-quantized and int4 pack-quantized"


def model_dtype_is_bf16(*places: ConfigFields) -> None:
    """Refuse a checkpoint whose unquantised weights are anything but bf16."""
    for fields in places:
        value = fields.raw("dtype", "torch_dtype")
        if value is not MISSING and value != "bfloat16":
            raise fields.fail("dtype", f"is {_shown(value)}, which is not modelled (bfloat16 is)")


def expert_format(
    text: ConfigFields, fields: ConfigFields, *, modelled: tuple[WeightFormat, ...]
) -> WeightFormat:
    """The format of the routed experts; an unknown quantisation is refused by name."""
    quantisation = text.child_or_none("quantization_config") or fields.child_or_none(
        "quantization_config"
    )
    if quantisation is None:
        return WeightFormat.BF16
    match method := quantisation.text("quant_method"):
        case "compressed-tensors":
            found = _compressed_tensors(quantisation)
        case "fp8":
            found = _block_fp8(quantisation)
        case _:
            raise quantisation.fail(
                "quant_method", f"is {_shown(method)}, which is not modelled", remedy=_REMEDY
            )
    if found not in modelled:
        raise quantisation.fail(
            "quant_method", f"gives {found.value}, which is not modelled for this architecture"
        )
    return found


def refuse_uneven_packing(text: ConfigFields, experts: Experts, *, width_field: str) -> None:
    """Refuse 4-bit experts whose rows do not divide into groups of 32."""
    if experts.format not in (WeightFormat.MXFP4, WeightFormat.INT4):
        return
    widths = {
        "moe_intermediate_size": experts.moe_intermediate_size,
        width_field: experts.hidden_size,
    }
    for field, width in widths.items():
        if width % MXFP4_GROUP:
            raise text.fail(field, f"is {width}, not a multiple of the group of {MXFP4_GROUP}")


def refuse_other_routers(text: ConfigFields) -> None:
    """Refuse routers with other tensors, and mixtures that skip layers."""
    if text.integer_or(1, "moe_layer_freq") != 1:
        raise text.fail("moe_layer_freq", "is not 1: skipped layers are not modelled")
    if (method := text.text("topk_method", default="noaux_tc")) != "noaux_tc":
        raise text.fail("topk_method", f"is {_shown(method)}, which is not modelled (noaux_tc is)")


def _block_fp8(quantisation: ConfigFields) -> WeightFormat:
    if quantisation.integers("weight_block_size", low=1, high=4096) != (FP8_BLOCK, FP8_BLOCK):
        raise quantisation.fail("weight_block_size", "is not [128, 128], which is modelled")
    if (kind := quantisation.text("fmt", default="e4m3")) != "e4m3":
        raise quantisation.fail("fmt", f"is {_shown(kind)}, which is not modelled (e4m3 is)")
    return WeightFormat.FP8_BLOCK


def _compressed_tensors(quantisation: ConfigFields) -> WeightFormat:
    storage = quantisation.text("format")
    groups = quantisation.child("config_groups")
    if len(groups.values) != 1:
        raise quantisation.fail("config_groups", "does not hold exactly one group")
    weights = groups.child(next(iter(groups.values))).child("weights")
    kind = weights.text("type")
    found = _COMPRESSED.get((storage, kind))
    if found is None:
        raise quantisation.fail(
            "format",
            f"is {_shown(storage)} with {_shown(kind)} weights, which is not modelled",
            remedy=_REMEDY,
        )
    if (bits := weights.integer("num_bits", high=64)) != 4:  # noqa: PLR2004 - four bits
        raise weights.fail("num_bits", f"is {bits}, which is not modelled (4 is)", remedy=_REMEDY)
    if weights.integer("group_size", low=-1, high=1 << 20) != MXFP4_GROUP:
        raise weights.fail("group_size", f"is not {MXFP4_GROUP}, which is modelled")
    if weights.raw("symmetric") is False:
        raise weights.fail("symmetric", "is false: zero points are not modelled")
    ignored = " ".join(quantisation.strings("ignore"))
    for part in _KEPT_BF16:
        if part not in ignored:
            raise quantisation.fail("ignore", f"does not name {part}, which is not modelled")
    return found


def _shown(value: object) -> str:
    return repr(value)[:60]
