"""What a model is made of, as far as its memory depends on it."""

from enum import StrEnum

from k31ctl.core.figure import Assumption
from k31ctl.core.tensors import TensorTemplate
from k31ctl.values import frozen


class WeightFormat(StrEnum):
    """How the elements of a linear layer are stored in the checkpoint."""

    BF16 = "bf16"
    MXFP4 = "mxfp4"
    INT4 = "int4"
    FP8_BLOCK = "fp8-block"


@frozen
class LatentAttention:
    """Multi-head latent attention: one cached vector per token for all heads.

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1; names as in config.json.
    """

    num_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    output_gate: bool


@frozen
class Indexer:
    """The scorer of sparse attention: it keeps one key per token and layer of its own."""

    num_heads: int
    head_dim: int
    topk: int


@frozen
class SparseLatentAttention:
    """Latent attention over the tokens that an indexer selects (DSA, gated or not)."""

    latent: LatentAttention
    indexer: Indexer


@frozen
class LinearAttention:
    """Kimi Delta Attention: a state of constant size instead of a growing cache."""

    num_heads: int
    head_dim: int
    conv_kernel_size: int
    full_rank_gate: bool


TokenMixer = LatentAttention | SparseLatentAttention | LinearAttention


@frozen
class Experts:
    """The routed and shared experts of a mixture-of-experts layer.

    ``hidden_size`` is the width that routed experts read and write: the latent width where the
    model has one, else the model's own.
    """

    num_experts: int
    num_experts_per_tok: int
    num_shared_experts: int
    moe_intermediate_size: int
    hidden_size: int
    format: WeightFormat


@frozen
class Vision:
    """The image encoder, as far as its memory and its tokens per image depend on it."""

    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    qkv_hidden_size: int
    patch_size: int
    merge_height: int
    merge_width: int


@frozen
class Published:
    """Totals of the released checkpoint, as its own headers or index state them."""

    num_tensors: int | None
    total_params: int | None
    total_bytes: int | None
    source: str


@frozen
class Model:
    """A model as its configuration describes it; ``mixers`` holds one entry per layer."""

    id: str
    name: str
    architecture: str
    hidden_size: int
    vocab_size: int
    max_position_embeddings: int
    mixers: tuple[TokenMixer, ...]
    moe_layers: tuple[int, ...]
    experts: Experts | None
    vision: Vision | None
    num_mtp_layers: int
    templates: tuple[TensorTemplate, ...]
    assumptions: tuple[Assumption, ...]
    published: Published | None = None

    @property
    def num_layers(self) -> int:
        """Decoder layers, without multi-token-prediction layers."""
        return len(self.mixers)

    def full_layers(self, first: int, end: int) -> tuple[int, ...]:
        """Indices in [first, end) of the layers that cache something for every token."""
        return tuple(
            i for i in range(first, end) if not isinstance(self.mixers[i], LinearAttention)
        )

    def linear_layers(self, first: int, end: int) -> tuple[int, ...]:
        """Indices in [first, end) of the layers that keep a state of constant size."""
        return tuple(i for i in range(first, end) if isinstance(self.mixers[i], LinearAttention))

    @property
    def latent(self) -> LatentAttention:
        """The shape of the latent attention; every model here has exactly one such shape."""
        for mixer in self.mixers:
            if isinstance(mixer, LatentAttention):
                return mixer
            if isinstance(mixer, SparseLatentAttention):
                return mixer.latent
        raise ValueError("the model has no latent attention layer")

    @property
    def indexer(self) -> Indexer | None:
        """The indexer's shape, where the model has sparse attention."""
        for mixer in self.mixers:
            if isinstance(mixer, SparseLatentAttention):
                return mixer.indexer
        return None

    @property
    def linear(self) -> LinearAttention | None:
        """The shape of the linear attention, where the model has any."""
        for mixer in self.mixers:
            if isinstance(mixer, LinearAttention):
                return mixer
        return None
