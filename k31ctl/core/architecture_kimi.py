"""Kimi Linear, Kimi K3 and Kimi K3.1 Pro: the text model that they configure."""

from k31ctl.core.attention_tensors import indexer_templates, kda_templates, latent_templates
from k31ctl.core.config_fields import MISSING, ConfigFields
from k31ctl.core.config_refusals import refuse_unmodelled
from k31ctl.core.embedding_tensors import output_vector
from k31ctl.core.figure import Assumption, Basis
from k31ctl.core.mixer_fields import kimi_mixers
from k31ctl.core.mlp_tensors import (
    DENSE,
    SHARED,
    gated_mlp,
    latent_moe,
    routed_experts,
    router,
)
from k31ctl.core.model import (
    Experts,
    LatentAttention,
    LinearAttention,
    SparseLatentAttention,
    TokenMixer,
    WeightFormat,
)
from k31ctl.core.quantisation import (
    expert_format,
    refuse_other_routers,
    refuse_uneven_packing,
)
from k31ctl.core.tensor_block import TensorBlock
from k31ctl.core.tensors import Group, Shard, TensorTemplate
from k31ctl.core.text_stack import TextStack

SPARSE = "KimiK31ForConditionalGeneration"

INDEXER_WIDTHS = Assumption(
    id="indexer-widths",
    text="the indexer's query projection reads the q-LoRA vector and its key norm has a bias, "
    "as in DeepSeek-V3.2; no public tensor list of this release says so",
    basis=Basis.ASSUMED,
    source="vLLM docs vllm.models.kimi_k3.nvidia.dsa (names); deepseek_v2.py (widths)",
)
SMALL_DTYPES = Assumption(
    id="kimi-linear-dtypes",
    text="A_log, dt_bias and the router's bias are stored in F32, convolutions and norms in BF16; "
    "any other choice changes the total by less than 0.003 %",
    basis=Basis.ASSUMED,
    source="transformers models/kimi_linear keeps these in F32; the headers are not public",
)


def kimi_stack(fields: ConfigFields, text: ConfigFields, *, architecture: str) -> TextStack:
    """The stack of a ``kimi_linear`` text model, alone or inside a multimodal one."""
    refuse_unmodelled(text, fields, activations=("silu", "situ"))
    multimodal, sparse = text is not fields, architecture == SPARSE
    if not sparse:
        for place in (text, fields):
            if place.raw("dsa_config") is not MISSING:
                raise place.fail("dsa_config", f"is not modelled for {architecture}")
    if multimodal:
        text.integer("routed_expert_hidden_size", high=1 << 17)
    hidden = text.integer("hidden_size", high=1 << 17)
    num_layers = text.integer("num_hidden_layers", high=2048)
    if text.integer_or(0, "num_nextn_predict_layers"):
        raise text.fail("num_nextn_predict_layers", "is not 0: prediction layers are not modelled")
    mixers = kimi_mixers(text, fields, num_layers=num_layers, sparse=sparse)
    experts, moe_layers = _experts(text, fields, hidden=hidden, num_layers=num_layers)
    prefix = "language_model." if multimodal else ""
    return TextStack(
        mixers=mixers,
        moe_layers=moe_layers,
        experts=experts,
        max_position_embeddings=text.integer(
            "max_position_embeddings", "model_max_length", high=1 << 40
        ),
        num_mtp_layers=0,
        templates=tuple(_text_templates(text, mixers, experts, moe_layers, prefix=prefix)),
        assumptions=_assumptions(mixers, sparse=sparse, multimodal=multimodal),
    )


def _assumptions(
    mixers: tuple[TokenMixer, ...], *, sparse: bool, multimodal: bool
) -> tuple[Assumption, ...]:
    found = []
    if sparse and any(isinstance(mixer, SparseLatentAttention) for mixer in mixers):
        found.append(INDEXER_WIDTHS)
    if not multimodal:
        found.append(SMALL_DTYPES)
    return tuple(found)


def _experts(
    text: ConfigFields, fields: ConfigFields, *, hidden: int, num_layers: int
) -> tuple[Experts, tuple[int, ...]]:
    refuse_other_routers(text)
    first = text.integer_or(0, "first_k_dense_replace", high=num_layers)
    num_experts = text.integer("num_experts", high=1 << 16)
    experts = Experts(
        num_experts=num_experts,
        num_experts_per_tok=text.integer(
            "num_experts_per_token", "num_experts_per_tok", high=num_experts
        ),
        num_shared_experts=text.integer_or(0, "num_shared_experts", high=1024),
        moe_intermediate_size=text.integer("moe_intermediate_size", high=1 << 20),
        hidden_size=text.integer_or(hidden, "routed_expert_hidden_size", low=1, high=1 << 17),
        format=expert_format(text, fields, modelled=(WeightFormat.BF16, WeightFormat.MXFP4)),
    )
    refuse_uneven_packing(text, experts, width_field="routed_expert_hidden_size")
    return experts, tuple(range(first, num_layers))


def _text_templates(
    text: ConfigFields,
    mixers: tuple[TokenMixer, ...],
    experts: Experts,
    moe_layers: tuple[int, ...],
    *,
    prefix: str,
) -> list[TensorTemplate]:
    hidden = text.integer("hidden_size")
    stem = f"{prefix}model.layers.{{layer}}."
    all_layers = TensorBlock(stem=stem, layers=tuple(range(len(mixers))))
    residuals = text.integer_or(0, "attn_res_block_size", high=2 * len(mixers)) > 0
    found = _layer_norms(all_layers, hidden, residuals=residuals)
    if residuals:
        found.append(output_vector(prefix, "model.output_attn_res_norm.weight", (hidden,)))
        found.append(output_vector(prefix, "model.output_attn_res_proj.weight", (1, hidden)))
    for mixer in dict.fromkeys(mixers):
        layers = tuple(i for i, other in enumerate(mixers) if other == mixer)
        block = TensorBlock(stem=f"{stem}self_attn.", layers=layers)
        found += _mixer_templates(block, mixer, hidden=hidden, padded=bool(prefix))
    dense_layers = tuple(range(len(mixers) - len(moe_layers)))
    if dense_layers:
        width = text.integer("intermediate_size", high=1 << 20)
        dense = TensorBlock(stem=f"{stem}mlp.", layers=dense_layers)
        found += gated_mlp(dense, DENSE, hidden=hidden, width=width)
    if moe_layers:
        block = TensorBlock(stem=f"{stem}block_sparse_moe.", layers=moe_layers)
        found += _moe_templates(text, block, experts, hidden=hidden, confirmed=bool(prefix))
    return found


def _layer_norms(block: TensorBlock, hidden: int, *, residuals: bool) -> list[TensorTemplate]:
    part = (Group.LAYER_NORMS, Shard.REPLICATED)
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }
    if residuals:
        shapes |= {"self_attention_res_norm": (hidden,), "mlp_res_norm": (hidden,)}
        shapes |= {"self_attention_res_proj": (1, hidden), "mlp_res_proj": (1, hidden)}
    return [block.tensor(f"{name}.weight", shape, part) for name, shape in shapes.items()]


def _mixer_templates(
    block: TensorBlock, mixer: TokenMixer, *, hidden: int, padded: bool
) -> list[TensorTemplate]:
    match mixer:
        case LinearAttention():
            return kda_templates(block, mixer, hidden=hidden, padded=padded)
        case LatentAttention():
            return latent_templates(block, mixer, hidden=hidden)
        case SparseLatentAttention(latent=latent, indexer=indexer):
            return latent_templates(block, latent, hidden=hidden) + indexer_templates(
                block.as_assumed(), latent, indexer, hidden=hidden, norm_dtype="BF16"
            )


def _moe_templates(
    text: ConfigFields, block: TensorBlock, experts: Experts, *, hidden: int, confirmed: bool
) -> list[TensorTemplate]:
    weight, bias = router(block, num_experts=experts.num_experts, hidden=hidden)
    if not confirmed:
        _, bias = router(block.as_assumed(), num_experts=experts.num_experts, hidden=hidden)
    found = [weight, bias]
    if text.raw("routed_expert_hidden_size") is not MISSING:
        normed = text.flag("latent_moe_use_norm", default=False)
        found += latent_moe(block, hidden=hidden, latent=experts.hidden_size, normed=normed)
    if experts.num_shared_experts:
        width = experts.num_shared_experts * experts.moe_intermediate_size
        found += gated_mlp(block.inside("shared_experts"), SHARED, hidden=hidden, width=width)
    return found + routed_experts(block, experts, names=("w1", "w3", "w2"))
