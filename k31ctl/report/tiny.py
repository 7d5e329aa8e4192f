"""A tiny checkpoint that was written, as text and as one JSON document."""

import shlex
import sys

from k31ctl.report.envelope import envelope
from k31ctl.report.lines import folded, printable
from k31ctl.tiny.checkpoint import TinyCheckpoint
from k31ctl.units import show_bytes


def show_tiny(written: TinyCheckpoint, *, as_json: bool) -> None:
    """Say what was written, and what it is made of."""
    if as_json:
        sys.stdout.write(_document(written))
        return
    sys.stdout.write("".join(f"{printable(line)}\n" for line in _text(written)))


def _document(written: TinyCheckpoint) -> str:
    inputs = {"folder": written.folder, "model": written.model, "seed": written.seed}
    return envelope(
        "tiny", inputs=inputs, result=written.made, assumptions=written.made.assumptions
    )


def _text(written: TinyCheckpoint) -> list[str]:
    made, folder = written.made, str(written.folder)
    attention = "latent attention"
    if made.index_topk is not None:
        attention = f"sparse attention over {made.index_topk} tokens"
    mixers = f"{made.num_linear_layers} of KDA, {made.num_full_layers} of {attention}"
    parts = {
        "layers": mixers,
        "MLPs": f"{made.num_dense_layers} dense, {made.num_moe_layers} with "
        f"{made.num_experts_per_tok} of {made.num_experts} experts in {made.expert_format}",
        "residuals": f"{made.num_snapshots} snapshots" if made.num_snapshots else "ordinary",
        "vision": f"{made.num_vision_layers} blocks" if made.num_vision_layers else "none",
        "tokens": f"{made.vocab_size} ids, in tiktoken's form",
    }
    size = f"{made.num_tensors:,} tensors, {show_bytes(made.total_bytes)}"
    lines = [
        f"A tiny {written.model} with random weights: {size}.",
        "What it says means nothing; how it is computed is the release's own.",
        "",
        *(f"{name:11}{text}" for name, text in parts.items()),
        f"{'seed':11}{written.seed}; the same seed gives the same bytes",
    ]
    if made.assumptions:
        lines += ["", "assumptions"]
        for each in made.assumptions:
            lines += folded(f"{each.id}: {each.text}", indent="  ")
    return [*lines, "", f"next: k31ctl verify --deep {shlex.quote(folder)}"]
