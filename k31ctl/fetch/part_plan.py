"""What a part of a checkpoint takes: which bytes to read, what to write, and what is here."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from k31ctl.catalog.models import model_at
from k31ctl.core.engine import DataParallel, StageSplit
from k31ctl.core.layout import Layout, stage_bounds
from k31ctl.errors import InputError, NotProvenError, UsageError
from k31ctl.fetch.digest import Digest
from k31ctl.fetch.headers import Header
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.index import INDEX_NAME, IndexCheck
from k31ctl.fetch.inspection import no_collection
from k31ctl.fetch.licence_text import is_licence
from k31ctl.fetch.part_layout import Chunk, PartFile, PartLayout, layout_of
from k31ctl.fetch.part_notes import PartNotes, work_folder
from k31ctl.fetch.selection import Chosen, Selection, choose
from k31ctl.fetch.source import Source, copy_small_files, read, require_sound, source_headers
from k31ctl.fetch.space import Space, space_for
from k31ctl.values import frozen

CONFIG_NAME: Final = "config.json"
_MOST_LICENCE_BYTES: Final = 1 << 20
_KEY_DIGITS: Final = 16


@frozen
class PartRequest:
    """What was asked for."""

    revision: str
    folder: Path
    selection: Selection
    connections: int = 1
    rate_bytes_per_s: float | None = None
    wait: bool = True
    sync: bool = True
    accepted_by: str | None = None


@frozen
class WantedPart:
    """A part as its source has it: what to write of weights, and the small files beside them."""

    layout: PartLayout
    chosen: tuple[Chosen, ...]
    small: tuple[tuple[str, bytes], ...]
    key: str


@frozen
class PartPlan:
    """What will be done, before the first byte of a tensor; bytes are those to read.

    ``published`` has the SHA-256 of each file that is taken whole, where the source says one.
    """

    label: str
    repo: str
    endpoint: str
    commit: str
    licence: str | None
    gated: str | None
    revision: str
    folder: Path
    selection: str
    wanted: WantedPart
    file_bytes_here: tuple[int, ...]
    published: tuple[str | None, ...]
    space: Space
    rate_bytes_per_s: float | None
    rate_source: str

    @property
    def bytes_total(self) -> int:
        """Bytes to read from the source, in all runs together."""
        return self.wanted.layout.read_bytes

    @property
    def bytes_here(self) -> int:
        """Bytes that an earlier run has read and written."""
        return sum(self.file_bytes_here)

    @property
    def bytes_to_get(self) -> int:
        """Bytes that are still to be read."""
        return self.bytes_total - self.bytes_here

    @property
    def eta_s(self) -> float | None:
        """Expected seconds of the download, None where no rate is known."""
        rate = self.rate_bytes_per_s
        return self.bytes_to_get / rate if rate else None


def wanted_part(source: Source, selection: Selection) -> WantedPart:
    """Read the headers of a source and return what the selection takes of it.

    Raises UsageError for a selection that chooses all or nothing, InputError for a source that is
    not sound, NotProvenError for a small file that is not what is published.
    """
    if selection.is_everything:
        raise UsageError(
            "everything is chosen",
            where="the selection",
            remedy="give --layers, --experts, --tensors or --rank, or fetch without them",
        )
    with TemporaryDirectory(prefix="k31ctl-") as temporary, no_collection():
        small = Path(temporary)
        found = copy_small_files(source, small)
        for name in (CONFIG_NAME, INDEX_NAME):
            if (small / name).exists():
                require_published(source, name, (small / name).read_bytes())
        headers = list(source_headers(source, found))
        require_sound(headers)
        _require_index(headers, found.weight_map)
        chosen = _chosen(small, headers, selection)
        config = (small / CONFIG_NAME).read_bytes() if (small / CONFIG_NAME).exists() else None
        layout = layout_of(headers, chosen, source.sizes())
    kept = [(CONFIG_NAME, config)] if config is not None else []
    return WantedPart(
        layout=layout,
        chosen=chosen,
        small=(*kept, *_licences(source)),
        key=_key(source, selection, layout),
    )


def part_plan(
    source: Source,
    request: PartRequest,
    wanted: WantedPart,
    *,
    write: bool,
    rate: float | None,
    rate_source: str,
) -> PartPlan:
    """Return what will be done; raises RefusedError where the target cannot be written."""
    notes = PartNotes(work_folder(request.folder), wanted.key)
    noted = notes.noted()
    here = [chunk for chunk in wanted.layout.chunks if chunk.number in noted]
    to_write = wanted.layout.written_bytes - sum(chunk.last - chunk.first for chunk in here)
    files = [
        HubFile(path=f"{wanted.key}/{f.path}", size_bytes=f.size_bytes, sha256=None, blob_id=None)
        for f in wanted.layout.files
    ]
    folder = work_folder(request.folder)
    snapshot = source.snapshot
    return PartPlan(
        label=source.label,
        repo=snapshot.repo if snapshot else source.label,
        endpoint=snapshot.endpoint if snapshot else "",
        commit=source.commit,
        licence=snapshot.licence if snapshot else None,
        gated=snapshot.gated if snapshot else None,
        revision=request.revision,
        folder=request.folder,
        selection=request.selection.text,
        wanted=wanted,
        file_bytes_here=_by_file(here, len(wanted.layout.files)),
        published=tuple(_published_digest(source, file) for file in wanted.layout.files),
        space=space_for(folder, files, bytes_to_write=to_write, write=write),
        rate_bytes_per_s=rate,
        rate_source=rate_source if rate else "",
    )


def _by_file(chunks: Sequence[Chunk], num_files: int) -> tuple[int, ...]:
    found = [0] * num_files
    for chunk in chunks:
        found[chunk.file] += chunk.num_bytes
    return tuple(found)


def _published_digest(source: Source, file: PartFile) -> str | None:
    """What the bytes of a file that is taken whole can be held against."""
    found = published(source, file.path) if file.is_whole else None
    return found.sha256 if found is not None else None


def published(source: Source, name: str) -> HubFile | None:
    """What a hub publishes of a file of the source."""
    files = source.snapshot.files if source.snapshot else ()
    return next((file for file in files if file.path == name), None)


def require_published(source: Source, name: str, content: bytes) -> None:
    """Raise NotProvenError where a file's bytes are not what a hub publishes."""
    file = published(source, name)
    if file is None:
        return
    digest = Digest(file)
    digest.update(memoryview(content))
    if digest.is_provable and not digest.is_right:
        raise NotProvenError(
            f"{name} does not arrive as it is published",
            where=source.label,
            remedy="run the command again, or name another --endpoint",
        )


def _require_index(headers: Sequence[Header], weight_map: dict[str, str] | None) -> None:
    """Raise InputError where headers and index do not agree on what lies where."""
    if weight_map is None:
        return
    check = IndexCheck(weight_map)
    for header in headers:
        for problem in check.problems_of(header.file, header.tensors):
            raise _disagree(header.file, problem)
    for file, problem in check.leftovers():
        raise _disagree(file, problem)


def _disagree(file: str, problem: str) -> InputError:
    return InputError(
        f"the file {problem}",
        where=file,
        remedy="name a sound checkpoint; k31ctl inspect shows every fault",
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


def _licences(source: Source) -> Iterator[tuple[str, bytes]]:
    """The terms go with the part."""
    for name, size in sorted(source.sizes().items()):
        if "/" not in name and is_licence(name) and size <= _MOST_LICENCE_BYTES:
            content = read(source, name, 0, size)
            require_published(source, name, content)
            yield name, content


def _key(source: Source, selection: Selection, layout: PartLayout) -> str:
    told = f"{source.label}\0{source.commit}\0{selection}\0{layout.digest()}"
    return sha256(told.encode()).hexdigest()[:_KEY_DIGITS]
