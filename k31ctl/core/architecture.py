"""From a config.json to a model: which architecture it names, and who knows its tensors."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from k31ctl.core.architecture_deepseek import deepseek_model
from k31ctl.core.architecture_kimi import kimi_model
from k31ctl.core.config_fields import ConfigFields
from k31ctl.core.model import Model, Published
from k31ctl.errors import InputError

_BUILDERS: Mapping[str, Callable[..., Model]] = {
    "KimiK3ForConditionalGeneration": kimi_model,
    "KimiK31ForConditionalGeneration": kimi_model,
    "KimiLinearForCausalLM": kimi_model,
    "DeepseekV3ForCausalLM": deepseek_model,
    "DeepseekV32ForCausalLM": deepseek_model,
    "KimiK25ForConditionalGeneration": deepseek_model,
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
    builder = _BUILDERS.get(architectures[0])
    if builder is None:
        raise InputError(
            f"the architecture {architectures[0][:80]!r} is not modelled",
            where=f"{where}, field architectures",
            remedy=f"modelled are: {', '.join(sorted(_BUILDERS))}",
        )
    built = builder(fields, architecture=architectures[0], model_id=model_id, name=name)
    return replace(built, published=published)
