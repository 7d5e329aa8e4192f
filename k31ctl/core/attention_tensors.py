"""Which tensors a layer's token mixer has: latent attention, an indexer, Kimi Delta Attention.

Shapes are [out, in], as stored. Sources: DeepSeek-V3 README_WEIGHTS and inference code; vLLM 0.33.0
models/kimi_k3 and model_executor/models/deepseek_v2.py; NVIDIA-NeMo/Automodel
components/models/kimi_k3; sqliteai/waste docs/K3.md; transformers models/kimi_linear.
"""

from dataclasses import replace

from k31ctl.core.model import Indexer, LatentAttention, LinearAttention, WeightFormat
from k31ctl.core.tensor_block import Part, TensorBlock
from k31ctl.core.tensors import Group, Shard, TensorTemplate

A_LOG_MULTIPLE = 128

_LATENT_HEADS: Part = (Group.LATENT_ATTENTION, Shard.ATTENTION)
_LATENT_WHOLE: Part = (Group.LATENT_ATTENTION, Shard.REPLICATED)
_INDEXER: Part = (Group.INDEXER, Shard.REPLICATED)
_KDA_HEADS: Part = (Group.KDA_PROJECTIONS, Shard.ATTENTION)
_KDA_WHOLE: Part = (Group.KDA_PROJECTIONS, Shard.REPLICATED)
_KDA_SMALL_HEADS: Part = (Group.KDA_SMALL, Shard.ATTENTION)
_KDA_SMALL_WHOLE: Part = (Group.KDA_SMALL, Shard.REPLICATED)


def latent_templates(
    block: TensorBlock, latent: LatentAttention, *, hidden: int
) -> list[TensorTemplate]:
    """The projections of latent attention: every rank keeps both down-projections whole.

    Symbols: H heads, R kv_lora_rank, P qk_rope_head_dim, N qk_nope_head_dim, V v_head_dim,
    Q q_lora_rank.
    """
    H, R, P = latent.num_heads, latent.kv_lora_rank, latent.qk_rope_head_dim
    N, V, Q = latent.qk_nope_head_dim, latent.v_head_dim, latent.q_lora_rank
    found: list[TensorTemplate] = []
    if Q is None:
        found += block.linear("q_proj", (H * (N + P), hidden), _LATENT_HEADS)
    else:
        found += block.linear("q_a_proj", (Q, hidden), _LATENT_WHOLE)
        found.append(block.tensor("q_a_layernorm.weight", (Q,), _LATENT_WHOLE))
        found += block.linear("q_b_proj", (H * (N + P), Q), _LATENT_HEADS)
    found += block.linear("kv_a_proj_with_mqa", (R + P, hidden), _LATENT_WHOLE)
    found.append(block.tensor("kv_a_layernorm.weight", (R,), _LATENT_WHOLE))
    found += block.linear("kv_b_proj", (H * (N + V), R), _LATENT_HEADS)
    if latent.output_gate:
        found += block.linear("g_proj", (H * V, hidden), _LATENT_HEADS)
    found += block.linear("o_proj", (hidden, H * V), _LATENT_HEADS)
    return found


def indexer_templates(
    block: TensorBlock, latent: LatentAttention, indexer: Indexer, *, hidden: int, norm_dtype: str
) -> list[TensorTemplate]:
    """The indexer's projections, whole on every rank; the key norm's type is always assumed.

    The head weights stay bf16 in an fp8 checkpoint.
    Source: DeepSeek-V3.2 inference/model.py; vLLM keeps all of them unsharded.
    """
    D = indexer.head_dim
    inside = block.inside("indexer")
    plain = replace(inside, linear_format=WeightFormat.BF16)
    norm = block.inside("indexer.k_norm").as_assumed()
    return [
        *inside.linear("wq_b", (indexer.num_heads * D, latent.q_lora_rank or hidden), _INDEXER),
        *inside.linear("wk", (D, hidden), _INDEXER),
        *plain.linear("weights_proj", (indexer.num_heads, hidden), _INDEXER),
        *(norm.tensor(part, (D,), _INDEXER, dtype=norm_dtype) for part in ("weight", "bias")),
    ]


def kda_templates(
    block: TensorBlock, mixer: LinearAttention, *, hidden: int, padded: bool
) -> list[TensorTemplate]:
    """The tensors of Kimi Delta Attention.

    ``padded`` is the form of Kimi K3: the small tensors in F32, and A_log as a vector filled up to
    a multiple of 128. Kimi Linear keeps A_log as [1, 1, H, 1]; the types of its small tensors are
    published nowhere and marked as assumed.
    """
    H, d = mixer.num_heads, mixer.head_dim
    width = H * d
    found: list[TensorTemplate] = []
    for name in ("q_proj", "k_proj", "v_proj"):
        found += block.linear(name, (width, hidden), _KDA_HEADS)
    if mixer.full_rank_gate:
        found += block.linear("g_proj", (width, hidden), _KDA_HEADS)
    else:
        found += block.linear("g_a_proj", (d, hidden), _KDA_WHOLE)
        found += block.linear("g_b_proj", (width, d), _KDA_HEADS)
    found += block.linear("o_proj", (hidden, width), _KDA_HEADS)
    found += block.linear("b_proj", (H, hidden), _KDA_HEADS)
    found += block.linear("f_a_proj", (d, hidden), _KDA_WHOLE)
    found += block.linear("f_b_proj", (width, d), _KDA_HEADS)
    return found + _kda_small(block if padded else block.as_assumed(), mixer, padded=padded)


def _kda_small(block: TensorBlock, mixer: LinearAttention, *, padded: bool) -> list[TensorTemplate]:
    H, d, K = mixer.num_heads, mixer.head_dim, mixer.conv_kernel_size
    dtype = "F32" if padded else "BF16"
    a_log = (-(-H // A_LOG_MULTIPLE) * A_LOG_MULTIPLE,) if padded else (1, 1, H, 1)
    return [
        *(
            block.tensor(f"{name}_conv1d.weight", (H * d, 1, K), _KDA_SMALL_HEADS, dtype=dtype)
            for name in ("q", "k", "v")
        ),
        block.tensor("o_norm.weight", (d,), _KDA_SMALL_WHOLE, dtype=dtype),
        block.tensor("A_log", a_log, _KDA_SMALL_HEADS, dtype="F32", params=H),
        block.tensor("dt_bias", (H * d,), _KDA_SMALL_HEADS, dtype="F32"),
    ]
