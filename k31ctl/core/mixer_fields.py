"""Which token mixer a configuration gives to each layer, and with which sizes."""

from k31ctl.core.config_fields import MISSING, ConfigFields
from k31ctl.core.model import (
    Indexer,
    LatentAttention,
    LinearAttention,
    SparseLatentAttention,
    TokenMixer,
)

# The key names inside dsa_config are not public: every spelling in use elsewhere is accepted.
_DSA_HEADS = ("index_n_heads", "num_heads", "n_heads", "head_count")
_DSA_HEAD_DIM = ("index_head_dim", "head_dim", "key_length", "key_dim")
_DSA_TOPK = ("index_topk", "topk", "top_k")
_DSA_LAYERS = ("layers", "dsa_layers", "full_attn_layers", "layer_ids")


def latent_attention(text: ConfigFields, *, output_gate: bool) -> LatentAttention:
    """The latent attention that the fields of DeepSeek-V2 and its descendants describe."""
    num_heads = text.integer("num_attention_heads", high=4096)
    if text.integer_or(num_heads, "num_key_value_heads", high=4096) != num_heads:
        raise text.fail(
            "num_key_value_heads", "differs from num_attention_heads: that is not latent attention"
        )
    if text.flag("attention_bias", default=False):
        raise text.fail("attention_bias", "is true, which is not modelled")
    return LatentAttention(
        num_heads=num_heads,
        q_lora_rank=text.integer_or(0, "q_lora_rank", high=1 << 17) or None,
        kv_lora_rank=text.integer("kv_lora_rank", high=1 << 17),
        qk_nope_head_dim=text.integer("qk_nope_head_dim", high=1 << 14),
        qk_rope_head_dim=text.integer("qk_rope_head_dim", high=1 << 14),
        v_head_dim=text.integer("v_head_dim", high=1 << 14),
        output_gate=output_gate,
    )


def flat_indexer(text: ConfigFields) -> Indexer:
    """The indexer of DeepSeek-V3.2, whose fields stand beside the others."""
    return Indexer(
        num_heads=text.integer("index_n_heads", high=4096),
        head_dim=text.integer("index_head_dim", high=4096),
        topk=text.integer("index_topk", high=1 << 20),
    )


def kimi_mixers(
    text: ConfigFields, fields: ConfigFields, *, num_layers: int, sparse: bool
) -> tuple[TokenMixer, ...]:
    """One mixer per layer of a Kimi Linear stack; the lists in the configuration count from 1."""
    config = text.child("linear_attn_config")
    full = _layer_numbers(config, "full_attn_layers", num_layers=num_layers)
    kda = _layer_numbers(config, "kda_layers", num_layers=num_layers)
    if len(full) + len(kda) != num_layers or full & kda:
        raise config.fail(
            "kda_layers", f"and full_attn_layers do not name each of {num_layers} layers once"
        )
    if not text.flag("mla_use_nope", default=False):
        raise text.fail("mla_use_nope", "is not true: rotated latent attention is not modelled")
    latent = latent_attention(text, output_gate=text.flag("mla_use_output_gate", default=False))
    mixer: TokenMixer = latent
    if sparse:
        block = text.child_or_none("dsa_config") or fields.child("dsa_config")
        mixer = SparseLatentAttention(latent=latent, indexer=_dsa_indexer(block, full, num_layers))
    linear = _linear_attention(config)
    return tuple(mixer if number in full else linear for number in range(1, num_layers + 1))


def _linear_attention(config: ConfigFields) -> LinearAttention:
    return LinearAttention(
        num_heads=config.integer("num_heads", high=4096),
        head_dim=config.integer("head_dim", high=4096),
        conv_kernel_size=config.integer("short_conv_kernel_size", low=2, high=64),
        full_rank_gate=config.flag("use_full_rank_gate", default=False),
    )


def _dsa_indexer(dsa: ConfigFields, full: frozenset[int], num_layers: int) -> Indexer:
    for name in _DSA_LAYERS:
        if dsa.raw(name) is not MISSING and full != _layer_numbers(
            dsa, name, num_layers=num_layers
        ):
            raise dsa.fail(name, "differs from linear_attn_config.full_attn_layers")
    return Indexer(
        num_heads=dsa.integer(*_DSA_HEADS, high=4096),
        head_dim=dsa.integer(*_DSA_HEAD_DIM, high=4096),
        topk=dsa.integer(*_DSA_TOPK, high=1 << 20),
    )


def _layer_numbers(config: ConfigFields, name: str, *, num_layers: int) -> frozenset[int]:
    listed = config.raw(name)
    if isinstance(listed, list | tuple) and len(listed) > num_layers:
        raise config.fail(name, f"lists {len(listed):,} layers, but the model has {num_layers:,}")
    numbers = config.integers(name, low=1, high=num_layers)
    if len(set(numbers)) != len(numbers):
        raise config.fail(name, "names a layer twice")
    return frozenset(numbers)
