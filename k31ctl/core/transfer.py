"""What a prefill instance hands to a decode instance for one request, and how long that takes."""

from math import exp

from k31ctl.core.cache_plan import CacheRows
from k31ctl.core.capacity import StageCache
from k31ctl.core.estimate import Estimate
from k31ctl.core.hardware import Link, Node
from k31ctl.core.layout import Layout
from k31ctl.core.performance import INTERVAL
from k31ctl.core.rates import crossing
from k31ctl.core.speed_parameters import SpeedParameters, parameter
from k31ctl.values import frozen

# Between InfiniBand's 3 to 5 us and EFA's 15 to 20; a message carries one layer.
HOP_LOW_S, HOP_S, HOP_HIGH_S = 4e-6, 8e-6, 20e-6
# What a node of eight 800 Gb/s links moved after RDMA had silently fallen back to TCP
# (whn09/kimi-k3-sglang, 2026-07-30).
TCP_NODE_BYTES_PER_S = 14e9


@frozen
class Transfer:
    """The hand-over of one request.

    ``latent_bytes``, ``index_bytes`` and ``state_bytes`` are what the request's own rows and
    states take once; ``sent_bytes`` is what crosses the links, where every decode rank gets the
    copy that it keeps. ``link`` is ``network`` or the kind of link inside a scale-up domain.
    """

    latent_bytes: float
    index_bytes: float
    state_bytes: float
    sent_bytes: float
    link: str
    link_bytes_per_s: float
    seconds: Estimate
    tcp_s: float

    @property
    def request_bytes(self) -> float:
        """Rows and states of the request, once."""
        return self.latent_bytes + self.index_bytes + self.state_bytes


def transfer(
    parameters: SpeedParameters,
    *,
    node: Node,
    prefill: Layout,
    decode: Layout,
    rows: CacheRows,
    caches: tuple[StageCache, ...],
    prompt_tokens: int,
    num_gpus: int,
) -> Transfer:
    """Rows over the prompt and the states, from the ranks that made them to those that keep them.

    ``rows`` and ``caches`` are those of the decode instance.

    Ranks send in parallel, each over its own link; the busier side sets the time. A draft model's
    rows are not counted. ``num_gpus`` is of a pair: where it lies inside one scale-up domain,
    its links carry the transfer.
    Formula: max(most bytes of a decode rank, sent bytes / prefill ranks) / rate + a hop per layer.
    """
    sent = [_rank_bytes(cache, prompt_tokens) * decode.attention_tp for cache in caches]
    received = max(_rank_bytes(cache, prompt_tokens) for cache in caches)
    senders = prefill.attention_tp * prefill.pp
    busiest = max(received, sum(sent) / senders)
    link = _link(node, num_gpus)
    per_rank = link.bandwidth_bytes_per_s
    if link.per == "node":
        per_rank /= min(node.num_gpus, max(senders, decode.world))
    share = parameter(parameters.network_fraction, link.kind)
    margin = exp(INTERVAL * share.spread)
    layers = sum(cache.num_full_layers + cache.num_linear_layers for cache in caches)
    rate = per_rank * share.value
    on_wire = busiest / rate
    sending_nodes = -(-senders // node.num_gpus)
    full = sum(cache.num_full_layers for cache in caches)
    return Transfer(
        latent_bytes=float(full * rows.latent_bytes * prompt_tokens),
        index_bytes=float(full * rows.index_bytes * prompt_tokens),
        state_bytes=float(sum(c.num_linear_layers for c in caches) * rows.whole_state_bytes),
        sent_bytes=sum(sent),
        link=link.kind,
        link_bytes_per_s=rate,
        seconds=Estimate(
            value=on_wire + layers * HOP_S,
            low=busiest / min(per_rank, rate * margin) + HOP_LOW_S,
            high=on_wire * margin + layers * HOP_HIGH_S,
        ),
        tcp_s=sum(sent) / sending_nodes / TCP_NODE_BYTES_PER_S,
    )


def _rank_bytes(cache: StageCache, prompt_tokens: int) -> float:
    rows = cache.latent_bytes_per_token + cache.indexer_bytes_per_token
    return rows * prompt_tokens + cache.state_bytes_per_sequence


def _link(node: Node, num_gpus: int) -> Link:
    if node.scale_up is not None and num_gpus <= max(node.scale_up_domain_gpus, node.num_gpus):
        return node.scale_up
    return crossing(node.network)
