"""What one more token, and one more request, costs in cache."""

from enum import StrEnum

from k31ctl.core.model import Indexer, LatentAttention, LinearAttention


class KvFormat(StrEnum):
    """The row that an engine stores for one token and one latent-attention layer."""

    BF16 = "bf16"
    FP8 = "fp8"
    FP8_DS_MLA = "fp8_ds_mla"
    NVFP4_DS_MLA = "nvfp4_ds_mla"


class IndexFormat(StrEnum):
    """The row that an engine stores for one token and one indexer."""

    BF16 = "bf16"
    FP8 = "fp8"
    MXFP4 = "mxfp4"


class StateDtype(StrEnum):
    """The type of the recurrent state of linear attention; its convolution stays in bf16."""

    FP32 = "fp32"
    BF16 = "bf16"


STATE_BYTES = {StateDtype.FP32: 4, StateDtype.BF16: 2}


def latent_row_bytes(latent: LatentAttention, kv_format: KvFormat) -> int:
    """Bytes of one token in one latent layer; no parallelism but decode-context divides it.

    Symbols: R kv_lora_rank, P qk_rope_head_dim.
    Formula: bf16 2(R+P); fp8 R+P; fp8_ds_mla R + 4(R/128) + 2P; nvfp4_ds_mla R/2 + R/16 + P.
    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1; row layouts as vLLM 0.33.0 declares them
    in model_executor/layers/attention/mla_attention.py (656 and 352 bytes for R=512, P=64).
    """
    R, P = latent.kv_lora_rank, latent.qk_rope_head_dim
    match kv_format:
        case KvFormat.BF16:
            return 2 * (R + P)
        case KvFormat.FP8:
            return R + P
        case KvFormat.FP8_DS_MLA:
            return R + 4 * -(-R // 128) + 2 * P
        case KvFormat.NVFP4_DS_MLA:
            return R // 2 + R // 16 + P


def index_row_bytes(indexer: Indexer, index_format: IndexFormat) -> int:
    """Bytes of one token's index key in one layer.

    Symbols: D index_head_dim.
    Formula: bf16 2D; fp8 D + 4(D/128), one fp32 scale per 128; mxfp4 D/2 + D/32, one E8M0 per 32.
    Source: vLLM 0.33.0 model_executor/layers/sparse_attn_indexer.py.
    """
    D = indexer.head_dim
    match index_format:
        case IndexFormat.BF16:
            return 2 * D
        case IndexFormat.FP8:
            return D + 4 * -(-D // 128)
        case IndexFormat.MXFP4:
            return D // 2 + D // 32


def state_bytes_per_layer(
    linear: LinearAttention, *, attention_tp: int, state_dtype: StateDtype, draft_tokens: int
) -> int:
    """Bytes of one request's state in one linear layer on one rank, whatever its length.

    The convolution keeps K-1 past inputs of q, k and v in bf16, and one more per draft token.

    Symbols: H heads, d head_dim, K conv_kernel_size, s bytes of a state element, n draft tokens.
    Formula: (H/tp) d d s + 3 (H d/tp) (K - 1 + n) 2
    Source: vLLM 0.33.0 MambaStateShapeCalculator.kda_state_shape.
    """
    H, d, s = linear.num_heads // attention_tp, linear.head_dim, STATE_BYTES[state_dtype]
    conv = conv_elements_per_layer(linear, attention_tp=attention_tp, draft_tokens=draft_tokens)
    return H * d * d * s + conv * 2


def conv_elements_per_layer(
    linear: LinearAttention, *, attention_tp: int, draft_tokens: int
) -> int:
    """Past inputs that the convolution of one linear layer keeps for one request on one rank."""
    H, d, K = linear.num_heads // attention_tp, linear.head_dim, linear.conv_kernel_size
    return 3 * H * d * (K - 1 + draft_tokens)
