"""A part of a checkpoint as valid safetensors files with their own index, marked as a part."""

import json
import os
import shutil
from collections.abc import Generator, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from k31ctl import __version__
from k31ctl.catalog.models import model_at
from k31ctl.core.engine import DataParallel, StageSplit
from k31ctl.core.layout import Layout, stage_bounds
from k31ctl.errors import InputError, UsageError
from k31ctl.fetch.headers import Header
from k31ctl.fetch.index import INDEX_NAME
from k31ctl.fetch.partial_marker import MARKER_NAME, MARKER_SCHEMA
from k31ctl.fetch.selection import ByteRange, Chosen, Selection, by_file, byte_ranges, choose
from k31ctl.fetch.source import Source, copy_small_files, require_sound, source_headers
from k31ctl.values import frozen

_ALIGN: Final = 8
_CONFIG: Final = "config.json"


@frozen
class PartPlanned:
    """What will be read and written."""

    num_tensors: int
    read_bytes: int
    written_bytes: int
    num_ranges: int


@frozen
class PartWritten:
    """One file is whole, under its name."""

    file: str
    num_tensors: int
    num_bytes: int


@frozen
class PartDone:
    """The folder is a part of a checkpoint."""

    folder: str
    num_files: int
    num_tensors: int
    read_bytes: int


PartEvent = PartPlanned | PartWritten | PartDone


def fetch_part(
    source: Source, selection: Selection, target: Path
) -> Generator[PartEvent, None, None]:
    """Write the chosen tensors into a new folder, and tell what happens.

    Everything is written beside the target and takes its name in one step at the end, so a folder
    of that name is always a whole part. Raises UsageError for a selection that chooses all or
    nothing, InputError for a target that exists or a source that is not sound.
    """
    if selection.is_everything:
        raise UsageError(
            "everything is chosen",
            where="the selection",
            remedy="give --layers, --experts, --tensors or --rank, or fetch without them",
        )
    if target.exists():
        raise InputError(
            "the target exists already", where=str(target), remedy="name a new folder with --to"
        )
    with TemporaryDirectory(prefix="k31ctl-") as small:
        found = copy_small_files(source, Path(small))
        headers = list(source_headers(source, found))
        require_sound(headers)
        chosen = _chosen(Path(small), headers, selection)
        planned = _planned(chosen)
        yield planned
        unfinished = target.with_name(f".{target.name}.k31ctl-{os.getpid()}")
        try:
            unfinished.mkdir(parents=True)
            written = []
            for event in _files(source, chosen, unfinished):
                written.append(event)
                yield event
            _write_records(source, selection, chosen, written, Path(small), unfinished)
            _sync(unfinished)
            unfinished.rename(target)
            _sync(target.parent)
        except OSError as error:
            raise InputError(
                f"cannot be written: {error.strerror}",
                where=str(target),
                remedy="make room there, or name another folder with --to",
            ) from error
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    yield PartDone(
        folder=str(target),
        num_files=len(written),
        num_tensors=len(chosen),
        read_bytes=planned.read_bytes,
    )


def _chosen(small: Path, headers: Sequence[Header], selection: Selection) -> tuple[Chosen, ...]:
    """The chosen tensors; only a rank needs the configuration, for its stages and slices."""
    if selection.rank is None:
        return choose(headers, selection, model=None)
    model = model_at(small)
    rank = selection.rank
    layout = Layout(
        nodes=1,
        gpus_per_node=rank.tp * rank.pp,
        tp=rank.tp,
        pp=rank.pp,
        dp=1,
        ep=1,
        dcp=1,
        data_parallel=DataParallel.GROUPS,
        stage_split=StageSplit.SPARE_LAST,
    )
    stages = stage_bounds(model.num_layers, layout)
    return choose(headers, selection, model=model, stages=stages)


def _planned(chosen: Sequence[Chosen]) -> PartPlanned:
    ranges = byte_ranges(chosen)
    return PartPlanned(
        num_tensors=len(chosen),
        read_bytes=sum(r.end - r.start for r in ranges),
        written_bytes=sum(written_bytes(each) for each in chosen),
        num_ranges=len(ranges),
    )


def written_bytes(chosen: Chosen) -> int:
    """Bytes that are written of a tensor."""
    if chosen.part is None:
        return chosen.num_bytes
    whole = chosen.shape[chosen.part.axis]
    return chosen.num_bytes // whole * (chosen.part.end - chosen.part.first)


def _files(source: Source, chosen: Sequence[Chosen], folder: Path) -> Iterator[PartWritten]:
    for file, held in by_file(chosen):
        path = folder / file
        with path.open("wb") as stream:
            num_bytes = _write_header(stream, held)
            num_bytes += _copy(source, held, stream)
            stream.flush()
            os.fsync(stream.fileno())
        yield PartWritten(file=file, num_tensors=len(held), num_bytes=num_bytes)


def _write_header(stream: BinaryIO, held: Iterable[Chosen]) -> int:
    """Write the header of a file, filled up so that the data is aligned; returns its bytes."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for each in held:
        begin, end = end, end + written_bytes(each)
        shape = list(each.written_shape)
        entries[each.name] = {"dtype": each.dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGN)
    stream.write(len(text).to_bytes(8, "little") + text)
    return 8 + len(text)


def _copy(source: Source, held: Sequence[Chosen], stream: BinaryIO) -> int:
    """Copy tensors range by range; a tensor whose columns are cut is the most that is in memory."""
    num_bytes = 0
    waiting = list(reversed(held))
    for span in byte_ranges(held):
        reader = _Reader(source, span)
        while waiting and waiting[-1].span[0] < span.end:
            each = waiting.pop()
            first, end = each.span
            reader.skip_to(first)
            if each.part is None or each.part.axis == 0:
                for piece in reader.pieces(end - first):
                    num_bytes += stream.write(piece)
            else:
                num_bytes += stream.write(each.cut(b"".join(reader.pieces(end - first))))
    return num_bytes


class _Reader:
    """A range of a file, read once from its start to its end."""

    def __init__(self, source: Source, span: ByteRange) -> None:
        self._chunks = source.chunks(span.file, span.start, span.end)
        self._position = span.start
        self._left = memoryview(b"")

    def skip_to(self, position: int) -> None:
        """Leave out what lies before a byte of the file."""
        for _ in self.pieces(position - self._position):
            pass

    def pieces(self, num_bytes: int) -> Iterator[memoryview]:
        """Yield the next bytes as they come."""
        while num_bytes > 0:
            if not self._left:
                self._left = memoryview(next(self._chunks))
            piece, self._left = self._left[:num_bytes], self._left[num_bytes:]
            num_bytes -= len(piece)
            self._position += len(piece)
            yield piece


def _write_records(
    source: Source,
    selection: Selection,
    chosen: Sequence[Chosen],
    written: Sequence[PartWritten],
    small: Path,
    folder: Path,
) -> None:
    """Write the configuration, the index of what is there, and the mark of a part."""
    if (small / _CONFIG).exists():
        shutil.copyfile(small / _CONFIG, folder / _CONFIG)
    index = {
        "metadata": {"total_size": sum(written_bytes(each) for each in chosen)},
        "weight_map": {each.name: each.file for each in chosen},
    }
    (folder / INDEX_NAME).write_text(json.dumps(index, indent=1) + "\n")
    rank = selection.rank
    marker = {
        "schema": MARKER_SCHEMA,
        "version": __version__,
        "source": source.label,
        "commit": source.commit or None,
        "selection": selection.text,
        "layers": selection.layers,
        "experts": selection.experts,
        "tensors": list(selection.globs),
        "rank": None if rank is None else {"rank": rank.rank, "tp": rank.tp, "pp": rank.pp},
        "num_tensors": len(chosen),
        "files": [each.file for each in written],
        "sliced": any(each.part is not None for each in chosen),
    }
    (folder / MARKER_NAME).write_text(json.dumps(marker, indent=1) + "\n")


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
