"""What a checkpoint's headers hold against what its configuration implies.

Half a million tensors are compared without a list of their names: a name is taken apart into its
template, its layer and its expert, and only these are kept.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import chain, islice, repeat
from math import prod
from operator import and_, or_

from k31ctl.core.found_tensors import FoundTensor, TensorColumns, TensorKind
from k31ctl.core.name_patterns import Pattern, patterns, range_text
from k31ctl.core.tensors import TensorTemplate
from k31ctl.values import frozen

# Buffers that old exports carry, that no configuration announces and no engine reads.
IGNORED_SUFFIX = ".rotary_emb.inv_freq"

_EXPERTS = ".experts."
_NUMBERED = re.compile(r"(?<![^.])(layers|experts|blocks)\.(0|[1-9][0-9]{0,5})(?=\.)")
# A layer is taken at once only while this many names are tried for one that is there.
_MOST_TRIED = 4
_HOLE = re.compile(r"\{(?:layer|expert)\}")


@frozen
class Mismatch:
    """Tensors of one template whose type or shape is not the expected one."""

    pattern: Pattern
    expected: str
    found: str
    names: tuple[str, ...]


@frozen
class Difference:
    """The comparison; lists of names are cut at the cap, counts are not.

    ``total_params`` counts each known tensor as its template does and any other by its elements.
    """

    num_tensors: int
    total_bytes: int
    total_params: int
    expected_tensors: int
    expected_bytes: int
    num_missing: int
    missing_bytes: int
    missing: tuple[str, ...]
    missing_patterns: tuple[Pattern, ...]
    num_unexpected: int
    unexpected_bytes: int
    unexpected: tuple[str, ...]
    unexpected_patterns: tuple[Pattern, ...]
    num_mismatched: int
    mismatched: tuple[Mismatch, ...]
    num_ignored: int
    duplicates: tuple[str, ...]
    num_duplicates: int

    @property
    def is_equal(self) -> bool:
        """Whether every expected tensor is there as expected, once, and no other."""
        return not (
            self.num_missing or self.num_unexpected or self.num_mismatched or self.num_duplicates
        )


class _Family:
    """What has been seen of one template: one byte per tensor, layer by layer as they appear."""

    __slots__ = ("found", "per_layer", "shape", "template", "wrong")

    def __init__(self, template: TensorTemplate) -> None:
        self.template, self.shape = template, template.shape
        self.per_layer = template.tensors_per_layer
        self.found: dict[int, bytearray] = {}
        self.wrong: dict[tuple[str, tuple[int, ...]], list[str]] = {}

    def gaps(self) -> Iterator[tuple[int, tuple[int, ...] | None]]:
        """Layers where something is missing, with the missing experts; None stands for all."""
        for layer in self.template.layers or (0,):
            seen = self.found.get(layer)
            if seen is None or not any(seen):
                yield layer, None
            elif 0 in seen:
                yield layer, tuple(i for i, mark in enumerate(seen) if not mark)

    def name(self, layer: int, expert: int) -> str:
        """The name of one of its tensors."""
        return self.template.name.replace("{layer}", str(layer)).replace("{expert}", str(expert))


class Comparison:
    """Takes tensors one by one, in any order, and says in the end how they differ."""

    def __init__(self, templates: Sequence[TensorTemplate], *, cap: int) -> None:
        self._cap = cap
        self._families = [_Family(template) for template in templates]
        # Attention kinds share names, so the layer is part of what finds a family.
        self._by_key: dict[tuple[str, ...], dict[int, _Family]] = {}
        for family in self._families:
            layers = self._by_key.setdefault(_template_key(family.template.name), {})
            layers.update(dict.fromkeys(family.template.layers or (0,), family))
        self._known: dict[tuple[str, str], tuple[_Family, bytearray] | None] = {}
        widest = max((family.per_layer for family in self._families), default=0)
        self._experts = {str(number): number for number in range(widest)}
        # The last word of a name tells most strangers from tensors without taking it apart.
        self._endings = {template.name.rpartition(".")[2] for template in templates}
        self._num_tried = self._num_taken = 0
        self._unexpected: dict[str, int] = {}
        self._num_tensors = self._total_bytes = self._total_params = 0
        self._num_ignored = self._num_duplicates = self._num_mismatched = 0
        self._duplicates: list[str] = []

    def add(self, tensors: Iterable[FoundTensor]) -> None:
        """Take the tensors of one file."""
        if isinstance(tensors, TensorColumns):
            tensors = self._add_columns(tensors)
        endings, add_known, add_unknown = self._endings, self._add_known, self._add_unknown
        for name, dtype, shape, num_bytes in tensors:
            self._num_tensors += 1
            self._total_bytes += num_bytes
            place = self._place(name) if name.rpartition(".")[2] in endings else None
            if place is None:
                add_unknown(name, shape, num_bytes)
            else:
                add_known(place, name, dtype, shape)

    def _add_columns(self, columns: TensorColumns) -> Iterable[FoundTensor]:
        """Take whole layers of experts, name by name as they should be; return what is left.

        The answer is the same as that of taking tensors one by one, in a third of the time.
        """
        kinds = dict(zip(columns.names, columns.kinds, strict=True))
        if len(kinds) != len(columns):
            return columns
        left: list[FoundTensor] = []
        tried: set[tuple[str, str]] = set()
        for name in columns.names:
            if name not in kinds:
                continue
            head, mark, tail = name.rpartition(_EXPERTS)
            key = (head, tail.partition(".")[2])
            if not mark or key in tried or not self._take_layer(name, key, kinds):
                left.append(FoundTensor(name, *kinds.pop(name)))
            if mark:
                tried.add(key)
        return left

    def _take_layer(self, name: str, key: tuple[str, str], kinds: dict[str, TensorKind]) -> bool:
        """Take all experts of the layer of a name, where each is absent or sound and seen once."""
        place = self._place(name)
        if place is None or self._num_tried > _MOST_TRIED * (self._num_taken + len(place[1])):
            return False
        family, seen, number = place
        head, rest = key
        names = [f"{head}{_EXPERTS}{expert}.{rest}" for expert in range(len(seen))]
        if names[number] != name:
            return False
        found = list(map(kinds.get, names))
        kind, template = kinds[name], family.template
        count = found.count(kind)
        self._num_tried += len(names)
        is_sound = kind.dtype == template.dtype and kind.shape == family.shape
        if not is_sound or count + found.count(None) != len(found):
            return False
        marks = bytes(each is not None for each in found)
        if any(map(and_, seen, marks)):
            return False
        seen[:] = bytes(map(or_, seen, marks))
        for taken in map(kinds.pop, names, repeat(None)):
            del taken
        self._num_taken += count
        self._num_tensors += count
        self._total_bytes += count * kind.num_bytes
        self._total_params += count * template.params
        return True

    def _add_known(
        self,
        place: tuple[_Family, bytearray, int],
        name: str,
        dtype: str,
        shape: tuple[int, ...],
    ) -> None:
        family, seen, number = place
        if seen[number]:
            self._mark_duplicate(name)
        seen[number] = 1
        template = family.template
        if dtype == template.dtype and shape == family.shape:
            self._total_params += template.params
            return
        self._total_params += template.params if shape == family.shape else prod(shape)
        self._num_mismatched += 1
        family.wrong.setdefault((dtype, shape), []).append(name)

    def _place(self, name: str) -> tuple[_Family, bytearray, int] | None:
        """The family of a name, the marks of its layer, and its place among them."""
        head, mark, tail = name.rpartition(_EXPERTS)
        if not mark:
            return self._slow_place(name)
        text, _, rest = tail.partition(".")
        key = (head, rest)
        if key not in self._known:
            found = self._slow_place(f"{head}{_EXPERTS}0.{rest}")
            self._known[key] = found and found[:2]
        known = self._known[key]
        number = self._experts.get(text)
        if known is None or number is None or number >= len(known[1]):
            return None
        return (*known, number)

    def _slow_place(self, name: str) -> tuple[_Family, bytearray, int] | None:
        key = _NUMBERED.split(name)
        numbers = [int(text) for text in key[2::3]]
        layered = key[1:2] == ["layers"]
        del key[2::3]
        layer = numbers[0] if layered else 0
        family = self._by_key.get(tuple(key), {}).get(layer)
        if family is None:
            return None
        number = numbers[-1] if family.template.num_experts else 0
        if number >= family.per_layer:
            return None
        seen = family.found.get(layer)
        if seen is None:
            seen = family.found[layer] = bytearray(family.per_layer)
        return family, seen, number

    def _add_unknown(self, name: str, shape: tuple[int, ...], num_bytes: int) -> None:
        if name.endswith(IGNORED_SUFFIX):
            self._num_ignored += 1
            return
        self._total_params += prod(shape)
        if name in self._unexpected:
            self._mark_duplicate(name)
        self._unexpected[name] = num_bytes

    def _mark_duplicate(self, name: str) -> None:
        self._num_duplicates += 1
        if len(self._duplicates) < self._cap:
            self._duplicates.append(name)

    def result(self) -> Difference:
        """How all tensors taken so far differ from the templates."""
        templates = [family.template for family in self._families]
        gaps = [(family, gap) for family in self._families for gap in family.gaps()]
        sizes = [
            (family.per_layer if experts is None else len(experts), family.template.tensor_bytes)
            for family, (_, experts) in gaps
        ]
        return Difference(
            num_tensors=self._num_tensors,
            total_bytes=self._total_bytes,
            total_params=self._total_params,
            expected_tensors=sum(t.num_tensors for t in templates),
            expected_bytes=sum(t.total_bytes for t in templates),
            num_missing=sum(count for count, _ in sizes),
            missing_bytes=sum(count * num_bytes for count, num_bytes in sizes),
            missing=tuple(islice(_missing_names(gaps), self._cap)),
            missing_patterns=tuple(
                pattern for family in self._families for pattern in _missing_patterns(family)
            ),
            num_unexpected=len(self._unexpected),
            unexpected_bytes=sum(self._unexpected.values()),
            unexpected=tuple(nsmallest(self._cap, self._unexpected)),
            unexpected_patterns=patterns(self._unexpected, cap=self._cap),
            num_mismatched=self._num_mismatched,
            mismatched=tuple(islice(self._all_wrong(), self._cap)),
            num_ignored=self._num_ignored,
            duplicates=tuple(self._duplicates),
            num_duplicates=self._num_duplicates,
        )

    def _all_wrong(self) -> Iterator[Mismatch]:
        return chain.from_iterable(self._wrong(family) for family in self._families)

    def _wrong(self, family: _Family) -> Iterator[Mismatch]:
        template = family.template
        for (dtype, shape), names in family.wrong.items():
            for pattern in patterns(names, cap=self._cap):
                yield Mismatch(
                    pattern=pattern,
                    expected=f"{template.dtype} {list(template.shape)}",
                    found=f"{dtype} {list(shape)}",
                    names=tuple(names[: self._cap]),
                )


def _template_key(name: str) -> tuple[str, ...]:
    key = _NUMBERED.split(_HOLE.sub("0", name))
    del key[2::3]
    return tuple(key)


def _missing_patterns(family: _Family) -> Iterator[Pattern]:
    """One pattern for all layers that lack the same experts."""
    layers_of: dict[tuple[int, ...] | None, list[int]] = {}
    for layer, experts in family.gaps():
        layers_of.setdefault(experts, []).append(layer)
    for experts, layers in layers_of.items():
        chosen: Sequence[int] = range(family.per_layer) if experts is None else experts
        name = family.template.name.replace("{layer}", range_text(layers))
        name = name.replace("{expert}", range_text(chosen))
        yield Pattern(name=name, count=len(layers) * len(chosen))


def _missing_names(
    gaps: Iterable[tuple[_Family, tuple[int, tuple[int, ...] | None]]],
) -> Iterator[str]:
    for family, (layer, experts) in gaps:
        for expert in range(family.per_layer) if experts is None else experts:
            yield family.name(layer, expert)
