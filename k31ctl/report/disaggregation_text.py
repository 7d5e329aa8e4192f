"""Two pools for a person at a terminal: how fast, why, how many, and one pool beside them."""

from textwrap import wrap

from k31ctl.core.disaggregation import Disaggregation
from k31ctl.core.estimate import Estimate
from k31ctl.core.pool_sizes import Sizes
from k31ctl.report.durations import duration
from k31ctl.units import show, show_bytes

WIDTH = 80
LABEL_WIDTH = 26
NUMBER_WIDTH = 11
MS = 1e3


def disaggregation_text(found: Disaggregation) -> list[str]:
    """The whole section as lines of at most 80 columns."""
    lines = _paragraph(_conclusion(found))
    lines += ["", *_table(found), ""]
    for text in (_transfer(found), _limit(found), _balance(found)):
        lines += _paragraph(text, indent="  ")
    return lines


def _paragraph(text: str, *, indent: str = "") -> list[str]:
    return wrap(text, WIDTH, initial_indent=indent, subsequent_indent=2 * indent)


def _conclusion(found: Disaggregation) -> str:
    sizes, load = found.sizes, found.workload
    pools = (
        f"{sizes.prefill} x {found.prefill_layout} for prefill and {sizes.decode} x "
        f"{found.decode_layout} for decode, {sizes.num_gpus} GPUs, at {load.concurrency:,} "
        f"requests of {load.prompt_tokens:,} in and {load.output_tokens:,} out"
    )
    if found.unified is None:
        return pools
    one = f"{found.unified.replicas} x {found.unified.layout} on as many GPUs"
    share = found.output_tok_s_per_gpu.value / (
        found.unified.output_tok_s.value / found.unified.num_gpus
    )
    said = {
        "even": f"give as many tokens as {one}",
        "disaggregated": f"give {share - 1:.0%} more tokens than {one}",
        "unified": f"give {1 - share:.0%} fewer tokens than {one}",
    }[found.winner or "even"]
    return f"{pools}, {said}"


def _table(found: Disaggregation) -> list[str]:
    head = f"{'':<{LABEL_WIDTH}}" + "".join(
        f"{text:>{NUMBER_WIDTH}}" for text in ("low", "expected", "high")
    )
    one = found.unified
    lines = [head + (f"{'one pool':>{NUMBER_WIDTH}}" if one else "")]
    ttft, tpot, rate = (one.ttft_s, one.tpot_s, one.output_tok_s) if one else (None,) * 3
    return [
        *lines,
        _line("TTFT, s", found.ttft_s, ttft, 1.0, "{:,.2f}"),
        _line("TPOT, ms", found.tpot_s, tpot, MS, "{:,.2f}"),
        _line("output tokens/s", found.output_tok_s, rate, 1.0, "{:,.0f}"),
    ]


def _line(label: str, ours: Estimate, theirs: Estimate | None, factor: float, form: str) -> str:
    values = [ours.low, ours.value, ours.high, *([theirs.value] if theirs else [])]
    shown = "".join(f"{form.format(value * factor):>{NUMBER_WIDTH}}" for value in values)
    return f"  {label:<{LABEL_WIDTH - 2}}{shown}"


def _transfer(found: Disaggregation) -> str:
    moved = found.transfer
    index = f", index keys {show_bytes(moved.index_bytes)}" if moved.index_bytes else ""
    state = f", KDA state {show_bytes(moved.state_bytes)}" if moved.state_bytes else ""
    return (
        f"a request hands over latents {show_bytes(moved.latent_bytes)}{index}{state}; with a copy "
        f"for every decode rank {show_bytes(moved.sent_bytes)} cross {moved.link} at "
        f"{show(moved.link_bytes_per_s, 'B/s')} a rank in {MS * moved.seconds.value:.1f} ms "
        f"({MS * moved.seconds.low:.1f} to {MS * moved.seconds.high:.1f}); {duration(moved.tcp_s)} "
        "if RDMA falls back to TCP, which no log says"
    )


def _limit(found: Disaggregation) -> str:
    loads = (
        f"prefill is {found.prefill_load:.0%} busy and decode gives {found.decode_load:.0%} of "
        "what it could"
    )
    waits = f"; a request waits {duration(found.wait_s)}" if found.wait_s > 0 else ""
    said = {
        "prefill": "the prefill pool sets the pace",
        "decode": "the cache of the decode pool sets the pace",
        "requests": "neither pool is full, and more requests would be served",
    }[found.limit]
    return f"{said}: {loads}{waits}"


def _balance(found: Disaggregation) -> str:
    text = (
        f"one prefill instance computes {found.prefill_tok_s:,.0f} prompt tokens/s; "
        f"{found.ratio:.2f} of them keep one full decode instance busy"
    )
    if found.best is None:
        return text
    return f"{text}; within the nodes {_sizes(found.best)} give most per GPU"


def _sizes(sizes: Sizes) -> str:
    return f"{sizes.prefill} for prefill and {sizes.decode} for decode ({sizes.num_gpus} GPUs)"
