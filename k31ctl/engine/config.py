"""The checkpoint's config.json as one frozen value: what the engine computes with."""

from collections.abc import Mapping
from typing import Final

from k31ctl.core.config_fields import MISSING, ConfigFields
from k31ctl.core.mixer_fields import kimi_mixers
from k31ctl.core.model import TokenMixer
from k31ctl.values import frozen

# The norms inside latent attention keep the default of the release's own class, not rms_norm_eps;
# four other engines take rms_norm_eps here, which moves logits by 6e-6.
LORA_NORM_EPS: Final = 1e-6
# The configuration of K3.1 declares no eps for the LayerNorm of its index keys, so that the model's
# own rms_norm_eps applies. Source: llama.cpp pull request 31779. (DeepSeek-V3.2 has 1e-6.)
INDEX_NORM_EPS_IS_RMS_NORM_EPS: Final = True

_ARCHITECTURES: Final = {
    "kimi_k3": "KimiK3ForConditionalGeneration",
    "kimi_k31": "KimiK31ForConditionalGeneration",
    "kimi_linear": "KimiLinearForCausalLM",
}
# A group counts by its best two experts.
_RANKED_BY: Final = 2
_SPARSE: Final = _ARCHITECTURES["kimi_k31"]


@frozen
class Activation:
    """The gated activation of every MLP: SiTU with its two bounds, or SiLU where there are none."""

    gate_bound: float | None
    up_bound: float | None


@frozen
class Router:
    """How experts are chosen and weighed."""

    num_experts: int
    num_chosen: int
    num_groups: int
    num_chosen_groups: int
    renormalised: bool
    scale: float


@frozen
class MoeShape:
    """A mixture of experts; ``latent`` is None where routed experts read the hidden vector."""

    hidden: int
    latent: int | None
    latent_normed: bool
    expert_width: int
    shared_width: int
    router: Router
    activation: Activation
    norm_eps: float


@frozen
class EngineConfig:
    """A text model as the engine builds it.

    ``residual_block`` is 0 where layers add to an ordinary residual stream.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    max_tokens: int
    norm_eps: float
    mixers: tuple[TokenMixer, ...]
    decay_bound: float | None
    num_dense_layers: int
    dense_width: int
    moe: MoeShape
    residual_block: int
    tied_embeddings: bool

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return len(self.mixers)

    @property
    def index_norm_eps(self) -> float:
        """The eps of the LayerNorm of index keys."""
        return self.norm_eps if INDEX_NORM_EPS_IS_RMS_NORM_EPS else LORA_NORM_EPS


def engine_config(config: Mapping[str, object], *, where: str) -> EngineConfig:
    """Read the text model of a ``kimi_k3``, ``kimi_k31`` or ``kimi_linear`` configuration.

    Raises InputError for another architecture, or for a field whose value is not computed.
    """
    fields = ConfigFields(config, where=where)
    named = fields.strings("architectures")
    given = named[0] if named else _ARCHITECTURES.get(fields.text("model_type", default=""), "")
    architecture = _known(fields, given)
    text = fields.child_or_none("text_config") or fields
    num_layers = text.integer("num_hidden_layers", high=2048)
    linear = text.child("linear_attn_config")
    norm_eps = _positive(text, "rms_norm_eps") or 1e-5
    return EngineConfig(
        architecture=architecture,
        vocab_size=text.integer("vocab_size"),
        hidden_size=text.integer("hidden_size", high=1 << 17),
        max_tokens=text.integer("max_position_embeddings", "model_max_length", high=1 << 40),
        norm_eps=norm_eps,
        mixers=kimi_mixers(text, fields, num_layers=num_layers, sparse=architecture == _SPARSE),
        decay_bound=_decay_bound(linear),
        num_dense_layers=text.integer_or(0, "first_k_dense_replace", high=num_layers),
        dense_width=text.integer("intermediate_size"),
        moe=_moe(text, norm_eps=norm_eps),
        residual_block=text.integer_or(0, "attn_res_block_size", high=4096),
        tied_embeddings=text.flag("tie_word_embeddings", default=False),
    )


def _known(fields: ConfigFields, architecture: str) -> str:
    """The architecture, where it is one that the engine runs."""
    if architecture not in _ARCHITECTURES.values():
        raise fields.fail(
            "architectures",
            f"is {architecture[:60]!r}, which the embedded engine does not run",
            remedy=f"it runs {', '.join(_ARCHITECTURES.values())}",
        )
    return architecture


def _moe(text: ConfigFields, *, norm_eps: float) -> MoeShape:
    width = text.integer("moe_intermediate_size", high=1 << 20)
    return MoeShape(
        hidden=text.integer("hidden_size"),
        latent=text.integer_or(0, "routed_expert_hidden_size", high=1 << 17) or None,
        latent_normed=text.flag("latent_moe_use_norm", default=False),
        expert_width=width,
        shared_width=width * text.integer_or(0, "num_shared_experts", high=1024),
        router=_router(text),
        activation=_activation(text),
        norm_eps=norm_eps,
    )


def _router(text: ConfigFields) -> Router:
    if (kind := text.text("moe_router_activation_func", default="sigmoid")) != "sigmoid":
        raise text.fail("moe_router_activation_func", f"is {kind[:40]!r}; sigmoid is computed")
    if text.integer_or(1, "moe_layer_freq") != 1:
        raise text.fail("moe_layer_freq", "is not 1: skipped layers are not computed")
    num_experts = text.integer("num_experts", high=1 << 16)
    router = Router(
        num_experts=num_experts,
        num_chosen=text.integer("num_experts_per_token", "num_experts_per_tok", high=num_experts),
        num_groups=text.integer_or(1, "num_expert_group", low=1, high=num_experts),
        num_chosen_groups=text.integer_or(1, "topk_group", low=1, high=num_experts),
        renormalised=text.flag("moe_renormalize", default=True),
        scale=_number(text, "routed_scaling_factor", default=1.0),
    )
    per_group, odd = divmod(num_experts, router.num_groups)
    if odd or (router.num_groups > 1 and per_group < _RANKED_BY):
        raise text.fail("num_expert_group", f"does not part {num_experts} experts evenly by pairs")
    if router.num_chosen_groups > router.num_groups:
        raise text.fail("topk_group", f"is more than the {router.num_groups} groups")
    if router.num_chosen > per_group * router.num_chosen_groups:
        raise text.fail("topk_group", f"groups hold fewer than {router.num_chosen} experts")
    return router


def _activation(text: ConfigFields) -> Activation:
    kind = text.text("hidden_act", default="silu")
    if kind == "silu":
        return Activation(gate_bound=None, up_bound=None)
    if kind != "situ":
        raise text.fail("hidden_act", f"is {kind[:40]!r}; silu and situ are computed")
    return Activation(
        gate_bound=_positive(text, "activation_situ_beta") or 1.0,
        up_bound=_positive(text, "activation_situ_linear_beta"),
    )


def _number(fields: ConfigFields, name: str, *, default: float) -> float:
    found = _number_or_none(fields, name)
    return default if found is None else found


def _positive(fields: ConfigFields, name: str) -> float | None:
    found = _number_or_none(fields, name)
    if found is not None and not found > 0:
        raise fields.fail(name, f"is {found:g}, not above 0")
    return found


def _decay_bound(linear: ConfigFields) -> float | None:
    found = _number_or_none(linear, "gate_lower_bound")
    if found is not None and not found < 0:
        raise linear.fail("gate_lower_bound", f"is {found:g}; a decay's logarithm is below 0")
    return found


def _number_or_none(fields: ConfigFields, name: str) -> float | None:
    value = fields.raw(name)
    if value is MISSING:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise fields.fail(name, f"is {str(value)[:40]!r}, not a number")
    return float(value)
