"""Two pools as a document for programs."""

from typing import Any

from k31ctl.core.disaggregation import Disaggregation
from k31ctl.core.estimate import Estimate
from k31ctl.core.pool_sizes import Sizes


def disaggregation_document(found: Disaggregation) -> dict[str, Any]:
    """Every figure under a name that ends in its unit; ranges as ``_low`` and ``_high``."""
    moved, one = found.transfer, found.unified
    return {
        "prefill_layout": found.prefill_layout,
        "decode_layout": found.decode_layout,
        "pools": _sizes(found.sizes),
        "best_pools": _sizes(found.best) if found.best else None,
        "prefill_instances_per_decode_instance": found.ratio,
        **_range("ttft_s", found.ttft_s),
        **_range("tpot_s", found.tpot_s),
        **_range("e2e_s", found.e2e_s),
        **_range("output_tok_s", found.output_tok_s),
        **_range("output_tok_s_per_gpu", found.output_tok_s_per_gpu),
        "running": found.running,
        "wait_s": found.wait_s,
        "prefill_s": found.prefill_s,
        "limit": found.limit,
        "prefill_tok_s": found.prefill_tok_s,
        "prefill_requests_per_s": found.prefill_requests_per_s,
        "decode_requests_per_s": found.decode_requests_per_s,
        "prefill_load": found.prefill_load,
        "decode_load": found.decode_load,
        "transfer": {
            "latent_bytes": moved.latent_bytes,
            "index_bytes": moved.index_bytes,
            "state_bytes": moved.state_bytes,
            "request_bytes": moved.request_bytes,
            "sent_bytes": moved.sent_bytes,
            "link": moved.link,
            "link_bytes_per_s": moved.link_bytes_per_s,
            "tcp_s": moved.tcp_s,
            **_range("seconds", moved.seconds),
        },
        "winner": found.winner,
        "unified": None
        if one is None
        else {
            "layout": one.layout,
            "replicas": one.replicas,
            "num_gpus": one.num_gpus,
            **_range("ttft_s", one.ttft_s),
            **_range("tpot_s", one.tpot_s),
            **_range("output_tok_s", one.output_tok_s),
        },
    }


def _sizes(sizes: Sizes) -> dict[str, float]:
    return {
        "prefill": sizes.prefill,
        "decode": sizes.decode,
        "num_gpus": sizes.num_gpus,
        "requests_per_s": sizes.requests_per_s,
        "requests_per_s_per_gpu": sizes.requests_per_s_per_gpu,
    }


def _range(name: str, estimate: Estimate) -> dict[str, float]:
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
