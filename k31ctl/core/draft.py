"""Draft models for speculative decoding, as far as they take memory."""

from dataclasses import dataclass

from k31ctl.core.figure import Basis
from k31ctl.units import Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A draft model: its weights, and the rows that it caches beside the target's.

    ``latent_layers`` cache like the target's latent attention; ``gqa_layers`` keep keys and values
    of ``kv_heads`` heads of ``kv_head_dim`` in bf16.
    """

    id: str
    name: str
    targets: tuple[str, ...]
    engines: tuple[str, ...]
    weight_bytes: Bytes
    draft_tokens: int
    latent_layers: int
    gqa_layers: int
    kv_heads: int
    kv_head_dim: int
    source: str
    checked: str
    basis: Basis

    def kv_bytes_per_token(self, attention_tp: int) -> float:
        """Bytes that one token adds on a rank for the draft's own grouped-query layers."""
        heads = -(-self.kv_heads // attention_tp)
        return self.gqa_layers * 2 * heads * self.kv_head_dim * 2
