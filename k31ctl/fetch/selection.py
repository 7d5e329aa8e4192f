"""Which tensors of a checkpoint are wanted, and which bytes of which files these are."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Final

from k31ctl.core.model import Model
from k31ctl.core.tensors import Place, Shard, TensorTemplate
from k31ctl.errors import UsageError
from k31ctl.fetch.headers import Header
from k31ctl.values import frozen

_LAYER: Final = re.compile(r"(?<![^.])layers\.(\d{1,6})(?=\.)")
_EXPERT: Final = re.compile(r"(?<![^.])experts\.(\d{1,6})(?=\.)")
_RANGE: Final = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
# Reading a gap of up to this many bytes costs less than asking once more.
MOST_GAP_BYTES: Final = 64 * 1024


@frozen
class Rank:
    """One rank of tensor-parallel groups in pipeline stages; stages are the slow index."""

    rank: int
    tp: int
    pp: int

    @property
    def stage(self) -> int:
        """Which pipeline stage the rank is in."""
        return self.rank // self.tp

    @property
    def shard(self) -> int:
        """Which part of a divided tensor the rank holds."""
        return self.rank % self.tp


@frozen
class Selection:
    """What is wanted: every condition that is set must hold.

    ``layers`` leaves out what is in no layer, but for ``--tensors``; ``experts`` only speaks of
    routed experts.
    """

    layers: tuple[int, ...] | None = None
    experts: tuple[int, ...] | None = None
    globs: tuple[str, ...] = ()
    rank: Rank | None = None
    text: str = ""

    @property
    def is_everything(self) -> bool:
        """Whether nothing is left out."""
        unset = self.layers is None and self.experts is None
        return unset and not self.globs and self.rank is None


@frozen
class Slice:
    """A part of a tensor: along ``axis``, from ``first`` up to ``end``."""

    axis: int
    first: int
    end: int


@frozen
class Chosen:
    """A tensor to write: where it lies whole in its file, and what of it is written."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    num_bytes: int
    part: Slice | None = None

    @property
    def written_shape(self) -> tuple[int, ...]:
        """The shape that is written."""
        if self.part is None:
            return self.shape
        size = self.part.end - self.part.first
        return (*self.shape[: self.part.axis], size, *self.shape[self.part.axis + 1 :])

    @property
    def span(self) -> tuple[int, int]:
        """The bytes of the file to read: rows lie together, columns need the whole tensor."""
        if self.part is None or self.part.axis != 0:
            return self.start, self.start + self.num_bytes
        row = self.num_bytes // self.shape[0]
        return self.start + self.part.first * row, self.start + self.part.end * row

    @property
    def written_bytes(self) -> int:
        """Bytes that are written."""
        if self.part is None:
            return self.num_bytes
        whole = self.shape[self.part.axis]
        return self.num_bytes // whole * (self.part.end - self.part.first)


@frozen
class ByteRange:
    """Bytes ``start`` up to ``end`` of a file."""

    file: str
    start: int
    end: int


def numbers(text: str, option: str) -> tuple[int, ...]:
    """The whole numbers that ``0-3,7`` stands for; raises UsageError for another spelling."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first, end = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > end:
            raise UsageError(
                f"{part[:40]!r} is not a range of whole numbers",
                where=option,
                remedy="write 0-3 or 0,2,5-7",
            )
        found.update(range(first, end + 1))
    return tuple(sorted(found))


def rank_of(rank: int, *, tp: int, pp: int) -> Rank:
    """A rank among tp x pp; raises UsageError for one that there is not."""
    if not 0 <= rank < tp * pp:
        raise UsageError(
            f"there is no rank {rank} among {tp * pp}",
            where="--rank",
            remedy="ranks begin at 0 and end below --tp times --pp",
        )
    return Rank(rank=rank, tp=tp, pp=pp)


def choose(
    headers: Iterable[Header],
    selection: Selection,
    *,
    model: Model | None,
    stages: Sequence[tuple[int, int]] = (),
) -> tuple[Chosen, ...]:
    """The wanted tensors in the order of their files; a rank needs the model and its stages.

    ``stages`` are the first layer and the end of each, as ``core.layout.stage_bounds`` gives them.
    Raises UsageError where nothing is wanted, where a wanted layer or expert is in no header, or
    where a rank cannot hold its part.
    """
    headers = tuple(headers)
    names = [tensor.name for header in headers for tensor in header.tensors]
    _require_held(names, _LAYER, selection.layers, "layer")
    _require_held(names, _EXPERT, selection.experts, "expert")
    by_name = _templates(model) if selection.rank is not None and model is not None else {}
    layers, experts = _as_set(selection.layers), _as_set(selection.experts)
    found = []
    for header in headers:
        for tensor, begin in zip(header.tensors, header.begins, strict=True):
            if not _is_wanted(tensor.name, layers, experts, selection.globs):
                continue
            part: Slice | None = None
            if selection.rank is not None:
                template = by_name.get(_pattern(tensor.name))
                layer = _number(_LAYER, tensor.name)
                if not _on_stage(template, layer, selection.rank, stages):
                    continue
                part = _slice(tensor.name, tensor.shape, template, selection.rank)
            found.append(
                Chosen(
                    name=tensor.name,
                    dtype=tensor.dtype,
                    shape=tensor.shape,
                    file=header.file,
                    start=header.data_start + begin,
                    num_bytes=tensor.num_bytes,
                    part=part,
                )
            )
    if not found:
        raise UsageError(
            "no tensor of the checkpoint is chosen",
            where=selection.text or "the selection",
            remedy="k31ctl inspect shows which tensors there are",
        )
    return tuple(found)


def _require_held(
    names: Iterable[str], pattern: re.Pattern[str], wanted: tuple[int, ...] | None, kind: str
) -> None:
    if wanted is None:
        return
    held = {number for name in names if (number := _number(pattern, name)) is not None}
    missing = [number for number in wanted if number not in held]
    if missing:
        more = f" and {len(missing) - 1} more" if missing[1:] else ""
        raise UsageError(
            f"the checkpoint has no {kind} {missing[0]}{more}",
            where=f"--{kind}s",
            remedy=f"its {kind}s are {min(held)} to {max(held)}"
            if held
            else f"it has no {kind}s: leave --{kind}s out",
        )


def byte_ranges(chosen: Iterable[Chosen]) -> tuple[ByteRange, ...]:
    """What to read, neighbours as one: in the order of files and bytes."""
    merged: list[tuple[str, int, int]] = []
    for file, (start, end) in sorted((each.file, each.span) for each in chosen):
        if merged and merged[-1][0] == file and start <= merged[-1][2] + MOST_GAP_BYTES:
            merged[-1] = (file, merged[-1][1], max(end, merged[-1][2]))
        else:
            merged.append((file, start, end))
    return tuple(ByteRange(file=file, start=start, end=end) for file, start, end in merged)


def _as_set(values: tuple[int, ...] | None) -> frozenset[int] | None:
    return None if values is None else frozenset(values)


def _is_wanted(
    name: str,
    layers: frozenset[int] | None,
    experts: frozenset[int] | None,
    globs: tuple[str, ...],
) -> bool:
    if globs and not any(fnmatchcase(name, glob) for glob in globs):
        return False
    if layers is not None and _number(_LAYER, name) not in layers:
        return False
    expert = _number(_EXPERT, name) if experts is not None else None
    return expert is None or experts is None or expert in experts


def _number(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.search(name)
    return int(found[1]) if found else None


# --- what a rank of a layout holds ---

# Matrices whose input is divided: each rank reads some columns and the results are summed.
_BY_COLUMNS: Final = ("o_proj", "down_proj", "w2")
# Vectors over all heads filled up to a multiple: a slice of them would not be one of heads.
_WHOLE: Final = ("A_log",)


def _templates(model: Model) -> dict[str, TensorTemplate]:
    found: dict[str, TensorTemplate] = {}
    for template in model.templates:
        for layer in template.layers or (0,):
            name = template.name.replace("{layer}", str(layer)).replace("{expert}", "0")
            found[_pattern(name)] = template
    return found


def _pattern(name: str) -> str:
    """A name with its expert taken out: layers differ in what they hold, experts do not."""
    return _EXPERT.sub("experts.{}", name)


def _on_stage(
    template: TensorTemplate | None,
    layer: int | None,
    rank: Rank,
    stages: Sequence[tuple[int, int]],
) -> bool:
    if template is None:
        return False
    if template.place is Place.FIRST:
        return rank.stage == 0
    if template.place is Place.LAST:
        return rank.stage == rank.pp - 1
    first, end = stages[rank.stage]
    return layer is not None and first <= layer < end


def _slice(
    name: str, shape: tuple[int, ...], template: TensorTemplate | None, rank: Rank
) -> Slice | None:
    """What of a tensor a rank holds; None is all of it."""
    parts = name.split(".")
    divided = template is not None and template.shard is not Shard.REPLICATED
    if rank.tp == 1 or 0 in shape or not divided or any(part in _WHOLE for part in parts):
        return None
    axis = int(any(part in _BY_COLUMNS for part in parts))
    if axis >= len(shape) or shape[axis] % rank.tp:
        raise UsageError(
            f"{name[:100]} {list(shape)} does not divide over {rank.tp} ranks",
            where="--tp",
            remedy="choose a --tp that divides every matrix, or select by --layers",
        )
    width = shape[axis] // rank.tp
    return Slice(axis=axis, first=rank.shard * width, end=(rank.shard + 1) * width)


def model_of_rank(model: Model, rank: Rank) -> Model:
    """The model with every tensor as wide as the rank holds it."""
    return replace(model, templates=tuple(_narrowed(each, rank) for each in model.templates))


def _narrowed(template: TensorTemplate, rank: Rank) -> TensorTemplate:
    part = _slice(template.name, template.shape, template, rank)
    if part is None:
        return template
    shape = list(template.shape)
    shape[part.axis] = part.end - part.first
    return replace(template, shape=tuple(shape), params=template.params // rank.tp)


def by_file(chosen: Iterable[Chosen]) -> Iterator[tuple[str, list[Chosen]]]:
    """The chosen tensors of each file, in the order of their bytes."""
    files: dict[str, list[Chosen]] = {}
    for each in chosen:
        files.setdefault(each.file, []).append(each)
    for file, held in sorted(files.items()):
        yield file, sorted(held, key=lambda c: c.start)
