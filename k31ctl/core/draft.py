"""Draft models for speculative decoding, as far as they take memory."""

from dataclasses import field

from k31ctl.core.figure import Basis
from k31ctl.units import Bytes
from k31ctl.values import frozen


@frozen
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
    acceptance: dict[str, float] = field(default_factory=dict)
    acceptance_source: str = ""

    def accepted(self, draft_tokens: int) -> float | None:
        """Tokens that a step yields on average at this depth; None where nobody published it.

        ``acceptance`` is keyed by depth; between two depths the line between them, beyond the
        deepest the value there, and never more than the depth and the target's own token.
        """
        known = sorted((int(depth), tokens) for depth, tokens in self.acceptance.items())
        if not known or not draft_tokens:
            return None if draft_tokens else 1.0
        below = [(0, 1.0), *(point for point in known if point[0] <= draft_tokens)]
        above = [point for point in known if point[0] > draft_tokens]
        (depth, tokens), (next_depth, next_tokens) = below[-1], (above or below[-1:])[0]
        if next_depth > depth:
            tokens += (next_tokens - tokens) * (draft_tokens - depth) / (next_depth - depth)
        return min(tokens, draft_tokens + 1.0)

    def kv_bytes_per_token(self, attention_tp: int) -> float:
        """Bytes that one token adds on a rank for the draft's own grouped-query layers."""
        heads = -(-self.kv_heads // attention_tp)
        return self.gqa_layers * 2 * heads * self.kv_head_dim * 2
