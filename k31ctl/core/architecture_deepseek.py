"""DeepSeek-V3, DeepSeek-V3.2 and the Kimi K2 family: the text model that they configure.

Sources: vLLM model_executor/models/deepseek_v2.py, DeepSeek-V3.2's own inference code.
"""

from dataclasses import replace

from k31ctl.core.attention_tensors import indexer_templates, latent_templates
from k31ctl.core.config_fields import ConfigFields
from k31ctl.core.config_refusals import refuse_unmodelled
from k31ctl.core.figure import Assumption, Basis
from k31ctl.core.mixer_fields import flat_indexer, latent_attention
from k31ctl.core.mlp_tensors import DENSE, SHARED, gated_mlp, routed_experts, router
from k31ctl.core.model import (
    Experts,
    LatentAttention,
    SparseLatentAttention,
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

SPARSE = "DeepseekV32ForCausalLM"

KEY_NORM_DTYPE = Assumption(
    id="indexer-norm-dtype",
    text="the indexer's key norm is stored in F32; in BF16 the total would be 31,744 bytes less",
    basis=Basis.ASSUMED,
    source="DeepSeek-V3.2 inference/model.py holds it in F32; the headers are not public",
)


def deepseek_stack(fields: ConfigFields, text: ConfigFields, *, architecture: str) -> TextStack:
    """The stack of a DeepSeek-V3 text model: sparse in V3.2, inside K2.5's prefix there."""
    refuse_unmodelled(text, fields, activations=("silu",))
    sparse = architecture == SPARSE
    hidden = text.integer("hidden_size", high=1 << 17)
    num_layers = text.integer("num_hidden_layers", high=2048)
    num_mtp = text.integer_or(0, "num_nextn_predict_layers", high=16)
    latent = latent_attention(text, output_gate=False)
    mixer = SparseLatentAttention(latent=latent, indexer=flat_indexer(text)) if sparse else latent
    experts, moe_layers = _experts(text, fields, hidden=hidden, num_layers=num_layers)
    prefix = "" if text is fields else "language_model."
    predicted = range(num_layers, num_layers + num_mtp)
    return TextStack(
        mixers=(mixer,) * num_layers,
        moe_layers=moe_layers,
        experts=experts,
        max_position_embeddings=text.integer("max_position_embeddings", high=1 << 40),
        num_mtp_layers=num_mtp,
        templates=(
            *_decoder(text, mixer, experts, moe_layers, prefix=prefix),
            *_prediction(text, mixer, experts, predicted, prefix=prefix),
        ),
        assumptions=(KEY_NORM_DTYPE,) if sparse else (),
    )


def _experts(
    text: ConfigFields, fields: ConfigFields, *, hidden: int, num_layers: int
) -> tuple[Experts, tuple[int, ...]]:
    refuse_other_routers(text)
    num_experts = text.integer("n_routed_experts", high=1 << 16)
    modelled = (WeightFormat.BF16, WeightFormat.INT4, WeightFormat.FP8_BLOCK)
    experts = Experts(
        num_experts=num_experts,
        num_experts_per_tok=text.integer("num_experts_per_tok", high=num_experts),
        num_shared_experts=text.integer_or(0, "n_shared_experts", high=1024),
        moe_intermediate_size=text.integer("moe_intermediate_size", high=1 << 20),
        hidden_size=hidden,
        format=expert_format(text, fields, modelled=modelled),
    )
    refuse_uneven_packing(text, experts, width_field="hidden_size")
    first = text.integer_or(0, "first_k_dense_replace", high=num_layers)
    return experts, tuple(range(first, num_layers))


def _block(prefix: str, experts: Experts, layers: tuple[int, ...]) -> TensorBlock:
    """Layers whose linear layers are all fp8 where the experts are, and bf16 otherwise."""
    fp8 = experts.format is WeightFormat.FP8_BLOCK
    return TensorBlock(
        stem=f"{prefix}model.layers.{{layer}}.",
        layers=layers,
        linear_format=WeightFormat.FP8_BLOCK if fp8 else WeightFormat.BF16,
    )


def _decoder(
    text: ConfigFields,
    mixer: LatentAttention | SparseLatentAttention,
    experts: Experts,
    moe_layers: tuple[int, ...],
    *,
    prefix: str,
) -> list[TensorTemplate]:
    num_layers, hidden = text.integer("num_hidden_layers"), text.integer("hidden_size")
    found = _attention_and_norms(_block(prefix, experts, tuple(range(num_layers))), mixer, hidden)
    dense_layers = tuple(range(num_layers - len(moe_layers)))
    if dense_layers:
        width = text.integer("intermediate_size", high=1 << 20)
        dense = _block(prefix, experts, dense_layers).inside("mlp")
        found += gated_mlp(dense, DENSE, hidden=hidden, width=width)
    if moe_layers:
        found += _moe(_block(prefix, experts, moe_layers), experts)
    return found


def _prediction(
    text: ConfigFields,
    mixer: LatentAttention | SparseLatentAttention,
    experts: Experts,
    layers: range,
    *,
    prefix: str,
) -> list[TensorTemplate]:
    """Prediction layers: a decoder layer each, with an input mix, an embedding and a head."""
    if not layers:
        return []
    hidden, vocab = text.integer("hidden_size"), text.integer("vocab_size", high=1 << 24)
    block = replace(_block(prefix, experts, tuple(layers)), prediction=True)
    whole, table = (Group.MTP, Shard.REPLICATED), (Group.MTP, Shard.VOCABULARY)
    return [
        *_attention_and_norms(block, mixer, hidden),
        *_moe(block, experts),
        block.tensor("enorm.weight", (hidden,), whole),
        block.tensor("hnorm.weight", (hidden,), whole),
        block.tensor("eh_proj.weight", (hidden, 2 * hidden), whole),
        block.tensor("shared_head.norm.weight", (hidden,), whole),
        block.tensor("shared_head.head.weight", (vocab, hidden), table),
        block.tensor("embed_tokens.weight", (vocab, hidden), table),
    ]


def _attention_and_norms(
    block: TensorBlock, mixer: LatentAttention | SparseLatentAttention, hidden: int
) -> list[TensorTemplate]:
    norms = (Group.LAYER_NORMS, Shard.REPLICATED)
    attention = block.inside("self_attn")
    found = [
        block.tensor("input_layernorm.weight", (hidden,), norms),
        block.tensor("post_attention_layernorm.weight", (hidden,), norms),
    ]
    match mixer:
        case LatentAttention():
            return found + latent_templates(attention, mixer, hidden=hidden)
        case SparseLatentAttention(latent=latent, indexer=indexer):
            found += latent_templates(attention, latent, hidden=hidden)
            return found + indexer_templates(
                attention, latent, indexer, hidden=hidden, norm_dtype="F32"
            )


def _moe(block: TensorBlock, experts: Experts) -> list[TensorTemplate]:
    inside, hidden = block.inside("mlp"), experts.hidden_size
    found = router(inside, num_experts=experts.num_experts, hidden=hidden)
    if experts.num_shared_experts:
        width = experts.num_shared_experts * experts.moe_intermediate_size
        found += gated_mlp(inside.inside("shared_experts"), SHARED, hidden=hidden, width=width)
    return found + routed_experts(inside, experts, names=("gate_proj", "up_proj", "down_proj"))
