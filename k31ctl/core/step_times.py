"""A step model boiled down to a few factors for each kind of stage, for who asks it very often.

Same times as ``StepModel``, to rounding: what does not depend on the load is multiplied out once,
and stages that are alike are counted once.
"""

from math import exp, log, sqrt

from k31ctl.core.step import (
    DCP_COLLECTIVES,
    EXCHANGE_BYTES_PER_HIDDEN_BYTE,
    REDUCE_RAMP_BYTES,
    StepModel,
)
from k31ctl.core.traffic import StageTraffic
from k31ctl.values import frozen


@frozen
class _Communication:
    """Seconds that pass whatever the load, for each token, and for each up to the ramp's end."""

    fixed_s: float
    token_s: float
    ramp_token_s: float


# Seconds: dense weights read and per token; experts per distinct one and per token; attention per
# pair read and computed; state and own launches per sequence; index per pair read and computed; per
# token; per token of the ramp; whatever the load; the draft's weights read and per token.
_Decode = tuple[
    float, float, float, float, float, float, float, float, float, float, float, float, float, float
]
# Seconds: dense weights read and per token; experts per distinct one and per token; per pair seen;
# index per pair; head and own launches per sequence; per token; per token of the ramp; whatever the
# load.
_Prefill = tuple[float, float, float, float, float, float, float, float, float, float, float]


class StepTimes:
    """Times of steps on one replica; asks like ``StepModel``."""

    __slots__ = (
        "_decode",
        "_experts",
        "_kinds",
        "_last_asked",
        "_last_chunk",
        "_per_token",
        "_prefill",
        "_ramp_tokens",
        "_topk",
        "replica",
    )

    def __init__(self, model: StepModel) -> None:
        stages = model.counted.stages
        kinds: dict[tuple[StageTraffic, bool], int] = {}
        self._kinds = tuple(
            kinds.setdefault((stage, i == len(stages) - 1), len(kinds))
            for i, stage in enumerate(stages)
        )
        self.replica = model.replica
        t = model.counted
        # The logarithm of not choosing an expert: of one token, and of the share that counts.
        missed = log(1 - t.experts_per_token / t.num_experts) if t.num_experts else 0.0
        self._experts = (t.local_experts, missed, 2 * log(t.expert_ranks) * t.local_experts)
        self._per_token = missed * (1 - model.rates.routing_concentration)
        self._last_asked = (0.0, 0.0, 0.0)
        self._last_chunk: list[float] = []
        self._topk = model.counted.topk
        self._ramp_tokens = REDUCE_RAMP_BYTES / model.counted.hidden_bytes
        self._decode = tuple(_decode(model, stage, last=last) for stage, last in kinds)
        self._prefill = tuple(_prefill(model, stage, last=last) for stage, last in kinds)

    def _distinct(self, tokens: float) -> float:
        """See ``StepModel.distinct_experts``."""
        e, per_token, variance = self._experts
        p = 1 - exp(min(per_token, tokens * self._per_token))
        return min(e, e * p + sqrt(variance * p * (1 - p)))

    def decode_s(self, *, sequences: float, context_tokens: float, positions: int) -> list[float]:
        """Seconds of a decode step on each stage."""
        tokens = sequences * positions
        everywhere = tokens * self.replica.groups
        distinct = self._distinct(everywhere)
        ramp = min(tokens, self._ramp_tokens)
        scored = sequences * context_tokens
        topk = self._topk
        pairs = scored if topk is None or context_tokens < topk else sequences * topk
        found = []
        for D, d, E, e, A, a, S, I, i, t, r, fixed, W, w in self._decode:  # noqa: E741
            # Comparisons in place: calls of max() take half of the time here.
            dense_s, experts_s, each_s, draft_s = (
                d * tokens,
                e * everywhere,
                a * positions,
                w * tokens,
            )
            seconds = fixed + t * tokens + r * ramp + S * sequences
            seconds += D if dense_s < D else dense_s
            seconds += E * distinct if E * distinct > experts_s else experts_s
            seconds += pairs * (A if each_s < A else each_s)
            seconds += scored * (I if i * positions < I else i * positions)
            found.append(seconds + (W if draft_s < W else draft_s))
        return [found[kind] for kind in self._kinds]

    def prefill_s(self, *, tokens: float, past_tokens: float, sequences: float) -> list[float]:
        """Seconds of a chunk of prompt tokens on each stage; the last answer is remembered.

        However many requests fill chunks, the chunks are the same.
        """
        asked = (tokens, past_tokens, sequences)
        if asked == self._last_asked:
            return self._last_chunk
        everywhere = tokens * self.replica.groups
        distinct = self._distinct(everywhere)
        ramp = min(tokens, self._ramp_tokens)
        scored = tokens * past_tokens
        topk = self._topk
        pairs = scored if topk is None or past_tokens < topk else tokens * topk
        found = []
        for D, d, E, e, a, i, s, own, t, r, fixed in self._prefill:
            seconds = fixed + own * sequences + t * tokens + r * ramp + a * pairs + i * scored
            dense_s, experts_s = d * tokens + s * sequences, e * everywhere
            seconds += D if dense_s < D else dense_s
            found.append(seconds + (E * distinct if E * distinct > experts_s else experts_s))
        self._last_asked, self._last_chunk = asked, [found[kind] for kind in self._kinds]
        return self._last_chunk


def _decode(model: StepModel, stage: StageTraffic, *, last: bool) -> _Decode:
    t, r = model.counted, model.rates
    sent = _communication(model, stage)
    passes = stage.num_layers * r.activation_passes * t.hidden_bytes / r.dense_bytes_per_s
    indexed = stage.full_layers if t.topk is not None else 0
    drafts = last and t.draft_bytes
    own = r.own_launch_fraction * stage.full_layers * r.layer_overhead_s
    return (
        (stage.dense_bytes + stage.head_bytes) / r.dense_bytes_per_s,
        2 * (stage.dense_params + stage.head_params) / r.dense_flops_per_s,
        stage.moe_layers * stage.expert_bytes / r.expert_bytes_per_s,
        stage.expert_flops / r.expert_flops_per_s,
        stage.full_layers * t.latent_row_bytes / r.attention_bytes_per_s,
        stage.full_layers * t.attention_pair_flops / r.dense_flops_per_s,
        2 * stage.linear_layers * t.state_bytes / r.state_bytes_per_s + own,
        indexed * t.index_row_bytes / r.attention_bytes_per_s,
        indexed * t.index_pair_flops / r.dense_flops_per_s,
        passes + sent.token_s,
        sent.ramp_token_s,
        stage.num_layers * r.layer_overhead_s - own + sent.fixed_s + last * r.step_overhead_s,
        t.draft_bytes / r.dense_bytes_per_s if drafts else 0.0,
        2 * t.draft_params / r.dense_flops_per_s if drafts else 0.0,
    )


def _prefill(model: StepModel, stage: StageTraffic, *, last: bool) -> _Prefill:
    t, r = model.counted, model.rates
    sent = _communication(model, stage)
    rate = r.prefill_flops_per_s
    passes = stage.num_layers * r.activation_passes * t.hidden_bytes / r.dense_bytes_per_s
    pair_flops = t.prefill_pair_flops if t.topk is None else t.attention_pair_flops
    launch = stage.num_layers * r.prefill_layer_overhead_s
    own = r.own_launch_fraction * launch
    return (
        stage.dense_bytes / r.dense_bytes_per_s,
        2 * stage.dense_params / rate,
        stage.moe_layers * stage.expert_bytes / r.expert_bytes_per_s,
        stage.expert_flops / r.expert_prefill_flops_per_s,
        stage.full_layers * pair_flops / rate,
        stage.full_layers * t.index_pair_flops / rate if t.topk is not None else 0.0,
        2 * stage.head_params / rate,
        own,
        passes + stage.linear_layers * t.state_token_flops / rate + sent.token_s,
        sent.ramp_token_s,
        launch - own + sent.fixed_s + last * r.step_overhead_s,
    )


def _communication(model: StepModel, stage: StageTraffic) -> _Communication:
    """Collectives of a stage and the hop to the next, as a line with a steeper beginning."""
    t, r, replica = model.counted, model.rates, model.replica
    reduces = [(replica.attention_ranks, r.all_reduce_s, r.all_reduce_bytes_per_s)]
    fixed = token = ramp = 0.0
    if replica.exchanges_tokens:
        copies = min(replica.moe_ranks, t.experts_per_token)
        sent = EXCHANGE_BYTES_PER_HIDDEN_BYTE * t.hidden_bytes * copies / replica.attention_ranks
        fixed += stage.moe_layers * r.all_to_all_s
        token += stage.moe_layers * sent / r.all_to_all_bytes_per_s
    else:
        reduces.append((replica.moe_ranks, r.moe_reduce_s, r.moe_reduce_bytes_per_s))
    for ranks, small_s, bytes_per_s in reduces:
        if ranks > 1:
            fixed += stage.num_layers * small_s
            sent = 2 * (ranks - 1) / ranks * t.hidden_bytes
            ramp += stage.num_layers * sent / bytes_per_s
    token += ramp
    if replica.dcp > 1:
        sent = t.context_parallel_bytes * (replica.dcp - 1) / replica.dcp
        fixed += stage.full_layers * DCP_COLLECTIVES * r.all_reduce_s
        token += stage.full_layers * sent / r.all_reduce_bytes_per_s
    if replica.pp > 1:
        fixed += r.hop_s
        token += t.hidden_bytes / replica.attention_ranks / r.hop_bytes_per_s
    return _Communication(fixed_s=fixed, token_s=token, ramp_token_s=ramp)
