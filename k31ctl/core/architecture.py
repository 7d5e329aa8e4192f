"""From a config.json to a model: which architecture it names, and who knows its tensors."""

from collections.abc import Callable, Mapping

from k31ctl.core.architecture_deepseek import deepseek_stack
from k31ctl.core.architecture_kimi import kimi_stack
from k31ctl.core.config_fields import ConfigFields
from k31ctl.core.embedding_tensors import embedding_and_head
from k31ctl.core.model import Model, Published, Vision
from k31ctl.core.quantisation import model_dtype_is_bf16
from k31ctl.core.tensors import TensorTemplate
from k31ctl.core.text_stack import TextStack
from k31ctl.core.vision import kimi_k3_vision, kimi_k25_vision
from k31ctl.core.vision_tensors import kimi_k3_vision_templates, kimi_k25_vision_templates
from k31ctl.errors import InputError

_STACKS: Mapping[str, Callable[..., TextStack]] = {
    "KimiK3ForConditionalGeneration": kimi_stack,
    "KimiK31ForConditionalGeneration": kimi_stack,
    "KimiLinearForCausalLM": kimi_stack,
    "DeepseekV3ForCausalLM": deepseek_stack,
    "DeepseekV32ForCausalLM": deepseek_stack,
    "KimiK25ForConditionalGeneration": deepseek_stack,
}
# Architectures with an image encoder: its shape, and its tensors.
_ENCODERS: Mapping[str, tuple[Callable[..., Vision], Callable[..., list[TensorTemplate]]]] = {
    "KimiK3ForConditionalGeneration": (kimi_k3_vision, kimi_k3_vision_templates),
    "KimiK31ForConditionalGeneration": (kimi_k3_vision, kimi_k3_vision_templates),
    "KimiK25ForConditionalGeneration": (kimi_k25_vision, kimi_k25_vision_templates),
}


def model_from_config(
    config: Mapping[str, object],
    *,
    model_id: str,
    name: str,
    where: str,
    published: Published | None = None,
) -> Model:
    """The model that a Hugging Face configuration describes.

    Raises InputError where the architecture, a mixer, the quantisation or a value is not
    modelled; the message names the field that said so.
    """
    fields = ConfigFields(config, where=where)
    architectures = fields.strings("architectures")
    if not architectures:
        raise fields.fail("architectures", "is missing: this is not a model's config.json")
    architecture = architectures[0]
    if architecture not in _STACKS:
        raise InputError(
            f"the architecture {architecture[:80]!r} is not modelled",
            where=f"{where}, field architectures",
            remedy=f"modelled are: {', '.join(sorted(_STACKS))}",
        )
    text = fields.child("text_config") if architecture in _ENCODERS else fields
    model_dtype_is_bf16(text, fields)
    stack = _STACKS[architecture](fields, text, architecture=architecture)
    hidden = text.integer("hidden_size")
    prefix = "" if text is fields else "language_model."
    embeddings = embedding_and_head(text, fields, prefix=prefix, hidden=hidden)
    vision, vision_templates = _vision(fields, architecture, hidden=hidden)
    return Model(
        id=model_id,
        name=name,
        architecture=architecture,
        hidden_size=hidden,
        vocab_size=text.integer("vocab_size", high=1 << 24),
        max_position_embeddings=stack.max_position_embeddings,
        mixers=stack.mixers,
        moe_layers=stack.moe_layers,
        experts=stack.experts,
        vision=vision,
        num_mtp_layers=stack.num_mtp_layers,
        templates=(*stack.templates, *embeddings, *vision_templates),
        assumptions=stack.assumptions,
        published=published,
    )


def _vision(
    fields: ConfigFields, architecture: str, *, hidden: int
) -> tuple[Vision | None, list[TensorTemplate]]:
    """The image encoder and its tensors, where the architecture has one."""
    if architecture not in _ENCODERS:
        return None, []
    shape, templates = _ENCODERS[architecture]
    encoder = fields.child("vision_config")
    vision = shape(encoder)
    return vision, templates(encoder, vision, text_hidden_size=hidden)
