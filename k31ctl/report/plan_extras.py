"""What a plan says of images, adapters and experts elsewhere, where it was asked."""

from textwrap import wrap

from k31ctl.core.plan import Plan
from k31ctl.units import show, show_bytes

WIDTH = 80


def extras(plan: Plan) -> list[str]:
    """Lines on everything that was asked for beside context and batch."""
    said = (_offload(plan), _finetune(plan), _image(plan))
    return [
        line for text in said if text for line in wrap(f"  {text}", WIDTH, subsequent_indent="    ")
    ]


def _offload(plan: Plan) -> str:
    found = plan.offload
    if found is None:
        return ""
    room = "" if found.fits_tier else ", which is more than there is"
    if not found.bytes_per_token:
        return f"offload: all {found.num_experts} experts of a layer stay on the GPUs"
    return (
        f"offload to {found.tier}: {found.resident_experts} of {found.num_experts} experts of a "
        f"layer stay on the GPUs, {show_bytes(found.offloaded_bytes_per_node)} a node move out of "
        f"{show_bytes(found.tier_bytes_per_node)}{room}. A token alone must bring in "
        f"{show(found.bytes_per_token, 'B')}; {show(found.bandwidth_bytes_per_s, 'B/s')} of link "
        f"make that {found.max_tok_s:.1f} tokens/s at the very most "
        f"({found.max_tok_s_at_batch:.1f} at batch {found.batch}), with uniform routing"
    )


def _finetune(plan: Plan) -> str:
    found = plan.finetune
    if found is None:
        return ""
    return (
        f"LoRA rank {found.rank}: {found.adapter_params:,} parameters; adapters "
        f"{show_bytes(found.adapter_bytes)}, gradients {show_bytes(found.gradient_bytes)}, Adam "
        f"{show_bytes(found.optimizer_bytes)}; activations kept for the backward pass are not "
        "counted"
    )


def _image(plan: Plan) -> str:
    found = plan.image
    if found is None:
        return ""
    per_image = found.num_tokens * plan.caches[plan.tightest].bytes_per_token
    return (
        f"an image of {found.width} x {found.height} becomes {found.num_tokens:,} tokens "
        f"({found.padded_width} x {found.padded_height} padded), {show_bytes(per_image)} of cache "
        "on every GPU, and about 10 tokens around it"
    )
