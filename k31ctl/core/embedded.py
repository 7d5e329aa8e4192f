"""What the embedded engine holds on one device: weights, cache, states and room to compute in.

Rows, states and activations are those of ``plan``; what differs is the type that the engine
computes in and the layers that it was told to build.
"""

from dataclasses import replace
from math import prod
from typing import Final

from k31ctl.core.engine import Engine, for_gpu
from k31ctl.core.figure import Basis, Line
from k31ctl.core.kv_cache import (
    IndexFormat,
    KvFormat,
    StateDtype,
    conv_elements_per_layer,
    index_row_bytes,
    latent_row_bytes,
    state_bytes_per_layer,
)
from k31ctl.core.memory import activation_line
from k31ctl.core.model import LinearAttention, Model, SparseLatentAttention
from k31ctl.core.tensors import Group, TensorTemplate
from k31ctl.core.vision import WORST_IMAGE, image_tokens
from k31ctl.values import frozen

_BF16_BYTES: Final = 2
_FLOAT32_BYTES: Final = 4
# What a patch of an image takes while it is encoded, measured at the released width in float32.
_PATCH_BYTES: Final = 55_000
_PATCH_MEASURED_AT: Final = 1024 * _FLOAT32_BYTES
_SIGHT: Final = (Group.VISION, Group.PROJECTOR)
EXPERTS: Final = (Group.EXPERT_VALUES, Group.EXPERT_SCALES)
# Never rounded to bf16, whatever the engine computes in.
_KEPT_IN_FLOAT32: Final = (Group.KDA_SMALL, Group.LAYER_NORMS, Group.ROUTER, Group.OUTPUT)


@frozen
class Wish:
    """What a user asks of the engine; None and empty text leave the choice to it."""

    device: str = ""
    dtype: str = ""
    layers: range | None = None
    experts: str = ""
    is_plain: bool = False
    experts_stored_bytes: int | None = None
    experts_ready_bytes: int | None = None
    num_requests: int = 8
    max_model_len: int | None = None
    cache_bytes: int | None = None


@frozen
class Held:
    """How the engine holds a model, or one stage of it.

    ``layers`` are those that are built; the embedding stands in front of the first, norm and head
    behind the last. Experts that are streamed are no weights. On a CPU a float32 matrix that
    float16 holds takes half of ``element_bytes``: only its values tell.
    """

    layers: range
    with_embedding: bool
    with_head: bool
    element_bytes: int
    packed_experts: bool
    streams_experts: bool = False
    with_vision: bool = False


@frozen
class Load:
    """What requests may need: how many at once, the longest, tokens of all, tokens of a step."""

    num_requests: int
    max_model_len: int
    num_tokens: int
    chunk_tokens: int


@frozen
class MemoryPlan:
    """Lines in bytes against what is free; the pool is what requests take of it."""

    device: str
    free_bytes: int
    layers: range
    lines: tuple[Line, ...]
    load: Load
    bytes_per_token: int
    state_bytes_per_request: int

    @property
    def total_bytes(self) -> int:
        """Bytes of all lines."""
        return sum(line.num_bytes for line in self.lines)

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights alone."""
        return self.line_bytes("weights_bytes")

    @property
    def cache_bytes(self) -> int:
        """Bytes of rows and states, as they are allocated."""
        return self.line_bytes("kv_cache_bytes") + self.line_bytes("state_bytes")

    @property
    def fits(self) -> bool:
        """Whether all of it is free."""
        return self.total_bytes <= self.free_bytes

    def line_bytes(self, key: str) -> int:
        """Bytes of the lines with this key; none is 0."""
        return sum(line.num_bytes for line in self.lines if line.key == key)


def held_weight_bytes(model: Model, held: Held) -> int:
    """Bytes of the text model's weights as the engine holds them."""
    text = [t for t in model.templates if t.group not in (*_SIGHT, Group.MTP)]
    return sum(held_bytes(t, held) * _how_many(t, held) for t in text)


def vision_weight_bytes(model: Model, held: Held) -> int:
    """Bytes of the image encoder's weights, where it is held."""
    if not held.with_vision:
        return 0
    return sum(held_bytes(t, held) * t.num_tensors for t in model.templates if t.group in _SIGHT)


def memory_plan(
    model: Model, engine: Engine, held: Held, load: Load, *, device: str, free_bytes: int
) -> MemoryPlan:
    """Everything that is allocated before the first request, and what a step needs on top."""
    page = engine.memory.page_tokens
    num_tokens = -(-load.num_tokens // page) * page
    per_token = sum(_row_bytes(model, layer, held) for layer in held.layers)
    per_request = sum(_state_bytes(model, layer, held) for layer in held.layers)
    width = held.element_bytes
    per_layer = "core.kv_cache, as plan counts it"
    lines = [
        memory_line("weights_bytes", "weights", held_weight_bytes(model, held), "config.json"),
        memory_line("kv_cache_bytes", "cache", per_token * num_tokens, per_layer),
        memory_line("state_bytes", "KDA state", per_request * load.num_requests, per_layer),
        _scaled(activation_line(model, engine, chunk_tokens=load.chunk_tokens), width),
        memory_line("workspace_bytes", "attention", _workspace(model, held, load), "its shapes"),
    ]
    if held.with_head:
        logits = load.num_requests * model.vocab_size * _FLOAT32_BYTES
        lines.append(memory_line("logits_bytes", "logits", logits, "its shapes"))
    lines += _vision_lines(model, held, load)
    if not device.startswith("cpu"):
        context = for_gpu(engine.memory.context, device)
        lines.append(
            Line(
                key="context_bytes",
                label="driver context",
                num_bytes=context.bytes,
                bases=(context.basis,),
                source=context.source,
            )
        )
    return MemoryPlan(
        device=device,
        free_bytes=free_bytes,
        layers=held.layers,
        lines=tuple(lines),
        load=load,
        bytes_per_token=per_token,
        state_bytes_per_request=per_request,
    )


def longest_context(plan: MemoryPlan) -> int:
    """The longest context of every request that would fit, in whole pages of 64; 0 where none."""
    growing = plan.line_bytes("kv_cache_bytes") + plan.line_bytes("workspace_bytes")
    room, longest = plan.free_bytes - (plan.total_bytes - growing), plan.load.max_model_len
    if not growing:
        return longest if room >= 0 else 0
    return max(0, min(longest, room * longest // growing) // 64 * 64)


def most_layers(model: Model, held: Held, *, room_bytes: int) -> int:
    """How many of the held layers, from the first, have weights of at most so many bytes."""
    count = 0
    for count, layer in enumerate(held.layers):
        part = replace(held, layers=range(held.layers.start, layer + 1))
        if held_weight_bytes(model, part) > room_bytes:
            return count
    return len(held.layers)


def held_bytes(t: TensorTemplate, held: Held) -> int:
    """Bytes of one tensor of a family."""
    if t.group in EXPERTS and held.streams_experts:
        return 0
    if t.group in EXPERTS and t.dtype == "U8":
        return t.tensor_bytes if held.packed_experts else t.params * held.element_bytes
    if len(t.shape) == 1 or t.group in _KEPT_IN_FLOAT32:
        return prod(t.shape) * _FLOAT32_BYTES
    if t.group is Group.EMBEDDING:
        return prod(t.shape) * held.element_bytes
    absorbed = 1 if t.name.endswith("kv_b_proj.weight") else 0
    return prod(t.shape) * held.element_bytes * (1 + absorbed)


def _how_many(t: TensorTemplate, held: Held) -> int:
    if not t.layers:
        is_held = held.with_embedding if t.group is Group.EMBEDDING else held.with_head
        return t.num_tensors if is_held else 0
    return t.tensors_per_layer * sum(layer in held.layers for layer in t.layers)


def _row_bytes(model: Model, layer: int, held: Held) -> int:
    """Bytes of one token in one layer: rows of bf16 are what plan counts."""
    mixer = model.mixers[layer]
    if isinstance(mixer, LinearAttention):
        return 0
    rows = latent_row_bytes(model.latent, KvFormat.BF16)
    if isinstance(mixer, SparseLatentAttention):
        rows += index_row_bytes(mixer.indexer, IndexFormat.BF16)
    return rows * held.element_bytes // _BF16_BYTES


def _state_bytes(model: Model, layer: int, held: Held) -> int:
    """Bytes of one request in one layer; the convolution is in the type that is computed in."""
    mixer = model.mixers[layer]
    if not isinstance(mixer, LinearAttention):
        return 0
    kept = state_bytes_per_layer(mixer, attention_tp=1, state_dtype=StateDtype.FP32, draft_tokens=0)
    conv = conv_elements_per_layer(mixer, attention_tp=1, draft_tokens=0)
    return kept + conv * (held.element_bytes - _BF16_BYTES)


def _workspace(model: Model, held: Held, load: Load) -> int:
    """Keys and values spelled out for one sequence, and its index scores; nothing where all is KDA.

    Symbols: L tokens of the longest context, H heads, N + P and V key and value channels, T tokens
    of a step. Formula: L H (2 (N + P) + N + V) b, and 4 T L twice.
    """
    if all(isinstance(model.mixers[layer], LinearAttention) for layer in held.layers):
        return 0
    L, T, latent = load.max_model_len, load.chunk_tokens, model.latent
    key = latent.qk_nope_head_dim + latent.qk_rope_head_dim
    spelled = 2 * key + latent.qk_nope_head_dim + latent.v_head_dim
    found = L * latent.num_heads * spelled * held.element_bytes
    if model.indexer is not None:
        found += 2 * T * L * _FLOAT32_BYTES
    return found


def _vision_lines(model: Model, held: Held, load: Load) -> list[Line]:
    """The image encoder, and the largest image that fits into a context while it is encoded."""
    vision = model.vision
    if not held.with_vision or vision is None:
        return []
    width, height = WORST_IMAGE
    most = image_tokens(vision, width=width, height=height).num_tokens
    patches = min(most, load.max_model_len) * vision.merge_height * vision.merge_width
    patch_bytes = _PATCH_BYTES * vision.hidden_size * held.element_bytes // _PATCH_MEASURED_AT
    image = Line(
        key="image_bytes",
        label="largest image",
        num_bytes=patches * patch_bytes,
        bases=(Basis.DERIVED, Basis.MEASURED),
        source="docs/engine.md, images",
    )
    weights = vision_weight_bytes(model, held)
    return [memory_line("vision_bytes", "image encoder", weights, "config.json"), image]


def memory_line(key: str, label: str, num_bytes: int, source: str) -> Line:
    """A line that follows from sizes alone."""
    return Line(key=key, label=label, num_bytes=num_bytes, bases=(Basis.DERIVED,), source=source)


def _scaled(line: Line, element_bytes: int) -> Line:
    return replace(line, num_bytes=line.num_bytes * element_bytes // _BF16_BYTES)
