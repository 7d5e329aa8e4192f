"""A damaged folder made right again, from where its record says that it came."""

import hashlib
import json
import shutil
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from k31ctl.core.model import Model
from k31ctl.errors import InputError, K31Error, NotProvenError
from k31ctl.fetch.digest_check import Expected
from k31ctl.fetch.events import Progress, Waiting
from k31ctl.fetch.findings import Finding, Level
from k31ctl.fetch.hub import Hub, HubFile
from k31ctl.fetch.journal import STATE_FOLDER, sync_folder
from k31ctl.fetch.lock import locked
from k31ctl.fetch.manifest import Manifest
from k31ctl.fetch.marks import note_marks, noted_marks
from k31ctl.fetch.mending import How, Mending, copied, put_in_place, suspects
from k31ctl.fetch.pace import events_of
from k31ctl.fetch.part_file import PartWriting
from k31ctl.fetch.part_layout import CHUNK_BYTES, PartLayout, only, whole_file
from k31ctl.fetch.part_notes import PartNotes
from k31ctl.fetch.part_plan import WantedPart, published, wanted_part
from k31ctl.fetch.part_records import small_contents
from k31ctl.fetch.part_workers import PartWorkers
from k31ctl.fetch.partial_marker import read_marker
from k31ctl.fetch.selection import Selection, model_of_rank, rank_of
from k31ctl.fetch.source import HubSource, Source
from k31ctl.fetch.space import require_room, space_for
from k31ctl.fetch.throttle import Throttle
from k31ctl.fetch.trouble import disk_failure
from k31ctl.fetch.watch import Watch
from k31ctl.values import frozen

_WORK: Final = f"{STATE_FOLDER}/repair"


@frozen
class Mended:
    """A file that is right again."""

    path: str
    size_bytes: int
    bytes_refetched: int
    how: How


@frozen
class Repair:
    """What was done; ``failure`` is the first thing that kept a file from being mended."""

    mended: tuple[Mended, ...]
    bytes_damaged: int
    bytes_refetched: int
    failure: K31Error | None


def damaged_files(
    findings: Sequence[Finding], expected: Sequence[Expected]
) -> tuple[Expected, ...]:
    """The files of the record whose size or digest is wrong."""
    levels = (Level.SIZES, Level.DIGESTS)
    bad = {finding.file for finding in findings if finding.level in levels}
    return tuple(file for file in expected if file.path in bad)


def repair_files(
    hub: Hub,
    folder: Path,
    record: Manifest,
    damaged: Sequence[Expected],
    *,
    connections: int,
    watch: Watch,
) -> Repair:
    """Mend files one by one, under the lock of the folder.

    A file keeps its damaged bytes until all of the new ones are proven. Raises RefusedError where
    the folder cannot take the work, InputError where the record does not say where the files are
    from.
    """
    if not record.endpoint or not record.commit:
        raise InputError(
            "the record does not say which hub and commit the files are from",
            where=str(folder),
            remedy="fetch again from where they came",
        )
    files = [
        HubFile(path=f.path, size_bytes=f.size_bytes or 0, sha256=f.digest, blob_id=None)
        for f in damaged
    ]
    largest = max(file.size_bytes for file in files)
    require_room(space_for(folder, files, bytes_to_write=largest, write=True))
    with locked(folder, wait=True, on_wait=lambda who: watch.tell(Waiting(holder=who))):
        return _Repairing(hub, folder, record, connections, watch).run(files)


class _Repairing:
    """The source of a folder's files, and the work on each."""

    def __init__(
        self, hub: Hub, folder: Path, record: Manifest, connections: int, watch: Watch
    ) -> None:
        self._hub, self._folder, self._record = hub, folder, record
        self._connections, self._watch = connections, watch
        self._work = folder / _WORK
        self._refetched = 0

    def run(self, files: Sequence[HubFile]) -> Repair:
        mended: list[Mended] = []
        failure: K31Error | None = None
        try:
            snapshot = self._hub.snapshot(self._record.repo, self._record.commit)
            source = HubSource(self._hub, snapshot)
            part = self._part(source)
            for file in files:
                try:
                    mended.append(self._mended(source, part, file))
                except NotProvenError as error:  # the next file may still be had
                    failure = failure or error
                except OSError as error:
                    failure = disk_failure(error, where=file.path)
                    break
        except K31Error as error:
            failure = failure or error
        if failure is None:
            with suppress(OSError):
                shutil.rmtree(self._work)
        return Repair(
            mended=tuple(mended),
            bytes_damaged=sum(file.size_bytes for file in files),
            bytes_refetched=self._refetched,
            failure=failure,
        )

    def _part(self, source: Source) -> WantedPart | None:
        """What the folder is a part of; None where it is whole."""
        marker = read_marker(self._folder)
        if marker is None:
            return None
        wanted = wanted_part(source, selection_of(marker))
        if wanted.key != marker.get("key"):
            raise NotProvenError(
                "the part would be another one today: its record is of another version or source",
                where=str(self._folder),
                remedy="fetch the part again into a new folder",
            )
        return wanted

    def _mended(self, source: Source, part: WantedPart | None, file: HubFile) -> Mended:
        content = small_contents(part).get(file.path) if part is not None else None
        if content is not None:
            return self._written(file, content)
        if part is None:
            _require_same(source, file)
            layout = whole_file(file.path, file.size_bytes)
        else:
            layout = only(part.layout, file.path)
        key = hashlib.sha256(f"{file.path}\0{file.sha256}".encode()).hexdigest()[:16]
        notes = PartNotes(self._work, key)
        copy = notes.unfinished / file.path
        before = self._refetched
        how = None if notes.noted() else self._in_copy(source, layout, file, notes)
        if how is None:
            self._all(source, layout, file, notes)
            less = self._refetched - before < layout.read_bytes
            how = How.NAMED if less else How.ALL
        put_in_place(copy, self._folder / file.path)
        sync_folder((self._folder / file.path).parent)
        notes.drop()
        return Mended(
            path=file.path,
            size_bytes=file.size_bytes,
            bytes_refetched=self._refetched - before,
            how=how,
        )

    def _in_copy(
        self, source: Source, layout: PartLayout, file: HubFile, notes: PartNotes
    ) -> How | None:
        """Mend a copy of what is there, where that is less than all; None where it is not."""
        self._watch.begin(f"mending {file.path}", file.size_bytes)
        there = self._folder / file.path
        copy = notes.unfinished / file.path
        if not copied(there, copy, size_bytes=file.size_bytes):
            return None
        writing = PartWriting(layout.files[0], layout.chunks, notes.unfinished)
        mending = Mending(source, writing, file.sha256 or "", self._watch)
        try:
            marks = noted_marks(self._folder, file.path, file.sha256 or "")
            how, digest = How.BLOCKS, mending.by_marks(marks) if marks else None
            if digest is None and not marks:
                num_bytes = there.stat().st_size
                if file.size_bytes - num_bytes > CHUNK_BYTES:
                    _keep_begin(writing, notes, num_bytes)
                    return None
                ranges = suspects(source, self._folder, writing, size_bytes=file.size_bytes)
                if 2 * sum(last - first for first, last in ranges) < file.size_bytes:
                    how, digest = How.NAMED, mending.by_ranges(ranges)
            if digest is None:
                return None
            writing.finish(sync=True)
            note_marks(self._folder, file.path, digest.hexdigest(), digest.marks)
        finally:
            self._refetched += mending.bytes_refetched
            writing.close()
        return how

    def _all(self, source: Source, layout: PartLayout, file: HubFile, notes: PartNotes) -> None:
        """Fetch the file anew, going on where an earlier repair stopped."""
        notes.begin()
        (notes.unfinished / file.path).parent.mkdir(parents=True, exist_ok=True)
        workers = PartWorkers(
            source,
            layout,
            notes,
            Throttle(limit_bytes_per_s=None, hours=None, stopped=self._hub.stopped),
            stopped=threading.Event(),
            stop=lambda: None,
            sync=True,
            digests={file.path: file.sha256 or ""},
        )
        self._hub.on_retry = workers.retried
        self._watch.begin(f"fetching {file.path}", layout.read_bytes)
        done = 0
        for event in events_of(
            workers, bytes_total=layout.read_bytes, connections=self._connections
        ):
            if isinstance(event, Progress):
                self._watch.advance(event.bytes_done - done)
                done = event.bytes_done
            else:
                self._watch.tell(event)
        notes.close()
        self._refetched += workers.bytes_downloaded
        if workers.failure is not None:
            raise workers.failure
        for path, marks in workers.marks.items():
            note_marks(self._folder, path, workers.verified[path], marks)

    def _written(self, file: HubFile, content: bytes) -> Mended:
        """Put back a small file of a part, which was read while the part was looked at."""
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise _other_content(file)
        copy = self._work / "small"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        put_in_place(copy, self._folder / file.path)
        return Mended(path=file.path, size_bytes=file.size_bytes, bytes_refetched=0, how=How.ALL)


def _keep_begin(writing: PartWriting, notes: PartNotes, num_bytes: int) -> None:
    """Note the chunks of a file that was cut short, so that only the rest is fetched."""
    notes.begin()
    for chunk in writing.chunks:
        digest = writing.digest_of(chunk) if chunk.last <= num_bytes else None
        if digest is not None:
            notes.note(chunk.number, digest)
    notes.close()


def model_held(model: Model, marker: dict[str, Any] | None) -> Model:
    """The model as a folder with this mark holds it: narrower where it is a rank's share."""
    rank = selection_of(marker).rank if marker is not None else None
    return model_of_rank(model, rank) if rank is not None else model


def selection_of(marker: dict[str, Any]) -> Selection:
    """The selection that a part's mark tells; raises InputError where it tells none."""
    try:
        rank = marker["rank"]
        return Selection(
            layers=None if marker["layers"] is None else tuple(map(int, marker["layers"])),
            experts=None if marker["experts"] is None else tuple(map(int, marker["experts"])),
            globs=tuple(map(str, marker["tensors"])),
            rank=None if rank is None else rank_of(rank["rank"], tp=rank["tp"], pp=rank["pp"]),
            text=str(marker["selection"]),
        )
    except (KeyError, TypeError, ValueError):
        raise InputError(
            "the mark of the part does not say how it was chosen",
            where=json.dumps(marker)[:80],
            remedy="fetch the part again into a new folder",
        ) from None


def _require_same(source: Source, file: HubFile) -> None:
    """Raise where the hub has no such file, or publishes another content of it."""
    found = published(source, file.path)
    if found is None:
        raise NotProvenError(
            f"the commit has no file {file.path}",
            where=source.label,
            remedy="name another --endpoint, or fetch the checkpoint again",
        )
    if found.size_bytes != file.size_bytes or found.sha256 not in (None, file.sha256):
        raise _other_content(file)


def _other_content(file: HubFile) -> NotProvenError:
    return NotProvenError(
        f"the hub publishes another content of {file.path} than the record has",
        where=file.path,
        remedy="find out which is wrong: fetch into the folder renews the record",
    )
