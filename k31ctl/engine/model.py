"""The whole model: embedding, layers, final mix, norm and head, over a batch of segments.

T tokens of all segments, D width, V vocabulary, S segments.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from k31ctl.core.model import LinearAttention, SparseLatentAttention
from k31ctl.engine.cache import Cache, LayerMemory, latent_of, slot_rows
from k31ctl.engine.config import EngineConfig
from k31ctl.engine.experts import MoeLayer
from k31ctl.engine.kda import KdaLayer
from k31ctl.engine.kernels import choice
from k31ctl.engine.latent_attention import ABSORBED_UP_TO, LatentLayer, Projected
from k31ctl.engine.linear import GatedMlp, Linear, Mlp, rms_norm
from k31ctl.engine.residual import ResidualMix, Stream
from k31ctl.engine.streamed import ExpertStore
from k31ctl.engine.tensors import Target, Tensors
from k31ctl.values import frozen

_EMBEDDING = "embed_tokens.weight"


@frozen
class Segment:
    """Some tokens of one sequence: where they begin in it, how many, and the slot it lives in."""

    slot: int
    start: int
    length: int


class Placed(NamedTuple):
    """Vectors that stand in place of some tokens' embeddings, as those of images do."""

    row_N: Tensor
    vector_ND: Tensor


class Layer:
    """One layer: two mixes, two norms, a token mixer and a feed-forward part."""

    def __init__(
        self,
        tensors: Tensors,
        config: EngineConfig,
        number: int,
        target: Target,
        *,
        packed: bool,
        store: ExpertStore | None,
    ) -> None:
        D, eps, mixer = config.hidden_size, config.norm_eps, config.mixers[number]
        self.device = target.device
        self.begins_block = config.residual_block > 0 and number % config.residual_block == 0
        self.mixes: tuple[ResidualMix | None, ResidualMix | None] = (None, None)
        if config.residual_block:
            before, between = (
                ResidualMix(tensors, name, hidden=D, eps=eps, target=target)
                for name in ("self_attention_res", "mlp_res")
            )
            self.mixes = (before, between)
        self.attention_norm = target.exact(tensors.take("input_layernorm.weight", D))
        self.ffn_norm = target.exact(tensors.take("post_attention_layernorm.weight", D))
        self.mixer: KdaLayer | LatentLayer
        inside, latent = tensors.inside("self_attn"), latent_of(mixer)
        if isinstance(mixer, LinearAttention):
            bound = config.decay_bound
            self.mixer = KdaLayer(
                inside, mixer, hidden=D, eps=eps, decay_bound=bound, target=target
            )
        elif latent is not None:
            indexer = mixer.indexer if isinstance(mixer, SparseLatentAttention) else None
            index_eps = config.index_norm_eps
            self.mixer = LatentLayer(
                inside, latent, indexer, hidden=D, index_norm_eps=index_eps, target=target
            )
        self.ffn: Mlp
        if number < config.num_dense_layers:
            mlp, width, kind = tensors.inside("mlp"), config.dense_width, config.moe.activation
            self.ffn = GatedMlp(mlp, kind, hidden=D, width=width, target=target)
        else:
            moe = tensors.inside("block_sparse_moe")
            self.ffn = MoeLayer(moe, config.moe, target, packed=packed, store=store)

    def __call__(
        self, stream: Stream, segments: Sequence[Segment], cache: Cache, number: int, eps: float
    ) -> None:
        """Add what the layer says to the stream, which comes to the layer's device."""
        stream.move(self.device)
        h = stream.mixed(self.mixes[0])
        if self.begins_block:
            stream.close_block()
        x, memory = rms_norm(h, self.attention_norm, eps), cache.layers[number]
        if isinstance(self.mixer, KdaLayer):
            stream.add(_linear(self.mixer, x, segments, memory))
        else:
            stream.add(_latent(self.mixer, x, segments, memory, cache))
        stream.add(self.ffn(rms_norm(stream.mixed(self.mixes[1]), self.ffn_norm, eps)))


def _linear(
    layer: KdaLayer, x_TD: Tensor, segments: Sequence[Segment], memory: LayerMemory
) -> Tensor:
    """KDA over all segments; neighbours of equal length go through as one batch."""
    assert memory.conv_BJE is not None and memory.state_BHKV is not None
    out, begin = [], 0
    for run in _runs(segments):
        end = begin + len(run) * run[0].length
        x = x_TD[begin:end].view(len(run), run[0].length, -1)
        rows = slot_rows([segment.slot for segment in run], x_TD.device)
        conv, state = memory.conv_BJE[rows], memory.state_BHKV[rows]
        out.append(layer(x, conv, state).flatten(0, 1))
        if not isinstance(rows, slice):  # a slice was updated in place
            memory.conv_BJE[rows], memory.state_BHKV[rows] = conv, state
        begin = end
    return out[0] if len(out) == 1 else torch.cat(out)


def _runs(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Neighbouring single tokens together, anything longer alone."""
    run: list[Segment] = []
    for segment in segments:
        if run and (segment.length > 1 or run[-1].length > 1):
            yield run
            run = []
        run.append(segment)
    if run:
        yield run


def _latent(
    layer: LatentLayer, x_TD: Tensor, segments: Sequence[Segment], memory: LayerMemory, cache: Cache
) -> Tensor:
    """Latent attention over all segments, each over its own sequence."""
    out, begin = [], 0
    for run in _runs(segments):
        end = begin + len(run) * run[0].length
        new = layer.project(x_TD[begin:end], absorbed=run[0].length <= ABSORBED_UP_TO)
        said = _attended(layer, new, run, memory, cache)
        out.append(layer.finish(said[0] if len(said) == 1 else torch.cat(said), new))
        begin = end
    return out[0] if len(out) == 1 else torch.cat(out)


def _attended(
    layer: LatentLayer,
    new: Projected,
    segments: Sequence[Segment],
    memory: LayerMemory,
    cache: Cache,
) -> list[Tensor]:
    """Attention of each segment, whose entries are cached first."""
    assert memory.latent_SC is not None
    device, out, begin = memory.latent_SC.device, [], 0
    for segment in segments:
        here = slice(begin, begin + segment.length)
        end = segment.start + segment.length
        written = cache.rows(segment.slot, segment.start, end, device)
        seen = cache.rows(segment.slot, 0, end, device)
        memory.latent_SC[written] = new.entry_TC[here]
        keys = None
        if memory.index_key_SX is not None and new.index_key_TX is not None:
            memory.index_key_SX[written] = new.index_key_TX[here]
            keys = memory.index_key_SX[seen]
        out.append(layer.attend(new, here, memory.latent_SC[seen], keys))
        begin = here.stop
    return out


class Ends:
    """What stands in front of the first layer, and behind the last on its device."""

    def __init__(
        self, tensors: Tensors, config: EngineConfig, target: Target, last: Target
    ) -> None:
        V, D, inside = config.vocab_size, config.hidden_size, tensors.inside("model")
        embedding = inside.take(_EMBEDDING, V, D)
        self.embedding_VD = target.weight(embedding)
        head = embedding if config.tied_embeddings else tensors.take("lm_head.weight", V, D)
        self.head = Linear([head], last)
        self.norm_D = last.exact(inside.take("norm.weight", D))
        self.mix = None
        if config.residual_block:
            name, eps = "output_attn_res", config.norm_eps
            self.mix = ResidualMix(inside, name, hidden=D, eps=eps, target=last)


class Model:
    """A checkpoint ready to run, or some of its layers, with or without what is around them.

    ``devices`` are those of layers that live elsewhere than on the target's, each layer behind the
    one before: the stream is handed on from one to the next.
    """

    def __init__(
        self,
        tensors: Tensors,
        *,
        config: EngineConfig,
        target: Target,
        layers: range | None = None,
        packed_experts: bool = False,
        store: ExpertStore | None = None,
        devices: Mapping[int, torch.device] | None = None,
    ) -> None:
        choice(target)  # refuses at once what would be refused later
        target = replace(target, forms=Counter())
        self.config, self.target, self.store = config, target, store
        numbers = range(config.num_layers) if layers is None else layers
        inside, devices = tensors.inside("model"), devices or {}
        at = {n: replace(target, device=devices.get(n, target.device)) for n in numbers}
        self.layers = {
            number: Layer(
                inside.inside(f"layers.{number}"),
                config,
                number,
                at[number],
                packed=packed_experts,
                store=store,
            )
            for number in numbers
        }
        self._ends = None
        if layers is None or _EMBEDDING in inside:
            self._ends = Ends(tensors, config, target, at[max(numbers)])

    def cache(self, *, num_slots: int, num_tokens: int) -> Cache:
        """Memory for the layers that are here."""
        return Cache(
            {number: self.config.mixers[number] for number in self.layers},
            num_slots=num_slots,
            num_tokens=num_tokens,
            target=self.target,
            devices={number: layer.device for number, layer in self.layers.items()},
        )

    def start(self, token_T: Tensor, placed: Placed | None = None) -> Stream:
        """The stream in front of the first layer."""
        device = self.target.device
        x_TD = functional.embedding(token_T.to(device), self.ends.embedding_VD)
        if placed is not None:
            x_TD[placed.row_N.to(device)] = placed.vector_ND.to(x_TD)
        return self.inject(x_TD)

    def inject(self, live_TD: Tensor, snapshots_TND: Tensor | None = None) -> Stream:
        """The stream in front of any layer, from a running sum and the snapshots before it."""
        block = self.config.residual_block
        most = -(-self.config.num_layers // block) if block else 0
        return Stream(live_TD, most_snapshots=most, snapshots_TND=snapshots_TND)

    @property
    def ends(self) -> Ends:
        """Embedding, last norm and head; raises ValueError where only layers were loaded."""
        if self._ends is None:
            raise ValueError("only layers are here: inject a stream, and read what comes out")
        return self._ends

    def advance(self, stream: Stream, segments: Sequence[Segment], cache: Cache) -> None:
        """Run the layers that are here over a stream."""
        for number, layer in self.layers.items():
            layer(stream, segments, cache, number, self.config.norm_eps)

    def finish(self, stream: Stream, rows: Tensor | slice) -> Tensor:
        """Logits of some of the tokens, in float32, on the device of the last layer."""
        device = self.ends.norm_D.device
        stream.move(device)
        h_TD = stream.mixed(self.ends.mix)[rows if isinstance(rows, slice) else rows.to(device)]
        return self.ends.head(rms_norm(h_TD, self.ends.norm_D, self.config.norm_eps)).float()

    def __call__(
        self,
        token_T: Tensor,
        segments: Sequence[Segment],
        cache: Cache,
        *,
        every: bool = False,
        placed: Placed | None = None,
    ) -> Tensor:
        """Logits behind the last token of each segment [S, V], or behind every token [T, V].

        The tokens of all segments stand one behind the other; their sequences are advanced.
        """
        with torch.inference_mode():
            stream = self.start(token_T, placed)
            self.advance(stream, segments, cache)
            ends = torch.tensor([segment.length for segment in segments]).cumsum(0) - 1
            return self.finish(stream, slice(None) if every else ends)

    def paths(self) -> tuple[str, ...]:
        """Which code computes what, and why: nothing is chosen silently."""
        forms = self.target.forms.most_common()
        linear = tuple(f"{count} matrices: {form}" for form, count in forms)
        kernels = choice(self.target).because
        streamed: tuple[str, ...] = ()
        if self.store is not None:
            host, device = self.store.budget.host_bytes, self.store.budget.device_bytes
            streamed = (
                f"experts: streamed from the files, at most {host:,} bytes of them in host memory "
                f"and {device:,} ready on a device",
            )
        return (
            *linear,
            f"SiTU, KDA, packed experts, sparse attention: {kernels}",
            "everything else: torch",
            *streamed,
            "KDA: token by token for one token, in chunks beyond",
        )
