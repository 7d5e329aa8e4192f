"""Sums over a model's layers and tensors that every layout asks for again, made once per model."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import wraps
from itertools import accumulate
from typing import Final, TypeVar

from k31ctl.core.model import LinearAttention, Model
from k31ctl.core.tensors import Group, Place, Shard, TensorTemplate
from k31ctl.values import frozen

T = TypeVar("T")
K = TypeVar("K")

MOST_KEPT: Final = 8
DIVIDED: Final[tuple[Shard, ...]] = tuple(shard for shard in Shard if shard is not Shard.EXPERT)


def once_per_object(compute: Callable[[K], T]) -> Callable[[K], T]:
    """Remember what was computed for the last few objects, such as models.

    They are told apart by identity: comparing or hashing a model walks all of its layers.
    """
    found: OrderedDict[int, tuple[K, T]] = OrderedDict()

    @wraps(compute)
    def remembered(key: K) -> T:
        known = found.get(id(key))
        if known is None:
            known = (key, compute(key))
            # The object is kept beside its value, so that its identity cannot be given away.
            found[id(key)] = known
            if len(found) > MOST_KEPT:
                found.popitem(last=False)
        return known[1]

    return remembered


@frozen
class Family:
    """Tensors that are divided alike and lie in the same layers.

    ``before`` counts their layers below each index. ``sizes`` holds the bytes that one layer has of
    a template, and how many templates have as many. The four sums are over templates that every
    text token uses, per layer: the output head apart from the rest.
    """

    shard: Shard
    place: Place
    before: tuple[int, ...]
    templates: tuple[TensorTemplate, ...]
    sizes: tuple[tuple[int, int], ...]
    dense_bytes: int
    dense_params: int
    head_bytes: int
    head_params: int

    def on_stage(self, first: int, end: int, *, stage: int, num_stages: int) -> int:
        """Layers of the family on a stage (1 for tensors that the stage holds once)."""
        match self.place:
            case Place.FIRST:
                return int(stage == 0)
            case Place.LAST:
                return int(stage == num_stages - 1)
            case Place.LAYER:
                return self.before[end] - self.before[first]


@frozen
class StageSums:
    """What a rank of one stage holds beside routed experts, and what of it every token uses."""

    by_shard: dict[Shard, int]
    dense_bytes: float
    dense_params: float
    head_bytes: float
    head_params: float


@frozen
class Tallies:
    """Layers by kind, running counts of them, and the tensors without prediction layers by family.

    ``loaded_bytes`` is what the ranks of a deployment hold together at the least. ``known`` and
    ``known_experts`` remember sums by all that they depend on.
    """

    full: tuple[int, ...]
    linear: tuple[int, ...]
    full_before: tuple[int, ...]
    linear_before: tuple[int, ...]
    moe_before: tuple[int, ...]
    divided: tuple[Family, ...]
    experts: tuple[Family, ...]
    loaded_bytes: int
    known: dict[tuple[int, ...], StageSums]
    known_experts: dict[tuple[int, ...], tuple[tuple[Family, int, int], ...]]

    def stage_sums(
        self, first: int, end: int, *, stage: int, num_stages: int, ways: tuple[int, ...]
    ) -> StageSums:
        """Sums of a stage whose tensors are divided into ``ways``, in the order of ``DIVIDED``."""
        key = (first, end, stage == 0, stage == num_stages - 1, *ways)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._sums(first, end, stage, num_stages, ways)
        return found

    def _sums(
        self, first: int, end: int, stage: int, num_stages: int, ways: tuple[int, ...]
    ) -> StageSums:
        over = dict(zip(DIVIDED, ways, strict=True))
        by_shard = dict.fromkeys(Shard, 0)
        sums = [0.0, 0.0, 0.0, 0.0]
        for family in self.divided:
            count = family.on_stage(first, end, stage=stage, num_stages=num_stages)
            if not count:
                continue
            parts = over[family.shard]
            by_shard[family.shard] += sum(
                times * -(-count * size // parts) for size, times in family.sizes
            )
            share = count / parts
            sums[0] += share * family.dense_bytes
            sums[1] += share * family.dense_params
            sums[2] += share * family.head_bytes
            sums[3] += share * family.head_params
        return StageSums(
            by_shard=by_shard,
            dense_bytes=sums[0],
            dense_params=sums[1],
            head_bytes=sums[2],
            head_params=sums[3],
        )


@once_per_object
def tallies(model: Model) -> Tallies:
    """The sums of a model."""
    linear = [i for i, mixer in enumerate(model.mixers) if isinstance(mixer, LinearAttention)]
    full = sorted(set(range(model.num_layers)) - set(linear))
    families = _families(model)
    return Tallies(
        full=tuple(full),
        linear=tuple(linear),
        full_before=_before(full, model.num_layers),
        linear_before=_before(linear, model.num_layers),
        moe_before=_before(model.moe_layers, model.num_layers),
        divided=tuple(f for f in families if f.shard is not Shard.EXPERT),
        experts=tuple(f for f in families if f.shard is Shard.EXPERT),
        loaded_bytes=sum(t.total_bytes for f in families for t in f.templates),
        known={},
        known_experts={},
    )


def _before(layers: Sequence[int], num_layers: int) -> tuple[int, ...]:
    marks = [0] * num_layers
    for layer in layers:
        if layer < num_layers:
            marks[layer] += 1
    return tuple(accumulate(marks, initial=0))


def _families(model: Model) -> list[Family]:
    members: dict[tuple[Shard, Place, tuple[int, ...]], list[TensorTemplate]] = {}
    for t in model.templates:
        if t.group is not Group.MTP:
            members.setdefault((t.shard, t.place, t.layers), []).append(t)
    return [
        Family(
            shard=shard,
            place=place,
            before=_before(layers, model.num_layers),
            templates=tuple(templates),
            sizes=tuple(Counter(_layer_bytes(t) for t in templates).items()),
            dense_bytes=sum(_layer_bytes(t) for t in templates if _dense(t)),
            dense_params=sum(_layer_params(t) for t in templates if _dense(t)),
            head_bytes=sum(_layer_bytes(t) for t in templates if _head(t)),
            head_params=sum(_layer_params(t) for t in templates if _head(t)),
        )
        for (shard, place, layers), templates in members.items()
    ]


def _layer_bytes(t: TensorTemplate) -> int:
    return t.tensors_per_layer * t.tensor_bytes


def _layer_params(t: TensorTemplate) -> int:
    return t.tensors_per_layer * t.params


def _dense(t: TensorTemplate) -> bool:
    return t.active and t.group is not Group.LM_HEAD


def _head(t: TensorTemplate) -> bool:
    return t.active and t.group is Group.LM_HEAD
