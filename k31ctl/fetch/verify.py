"""A checkpoint on disk, proven level by level: sizes, digests, structure, values."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from k31ctl.catalog.models import load_model, model_at
from k31ctl.catalog.store import Store
from k31ctl.core.model import Model
from k31ctl.errors import InputError, K31Error, NotProvenError
from k31ctl.fetch.deep import check_values
from k31ctl.fetch.digest_check import (
    DigestCheck,
    Expected,
    check_files,
    expected_files,
    extra_files,
)
from k31ctl.fetch.findings import Finding, Level, Severity
from k31ctl.fetch.headers import read_headers
from k31ctl.fetch.hub import Hub
from k31ctl.fetch.index import CheckpointFiles, checkpoint_files
from k31ctl.fetch.inspection import Inspection, inspect_files
from k31ctl.fetch.manifest import MANIFEST_NAME, Manifest, read_manifest_file
from k31ctl.fetch.partial_marker import part_of, read_marker
from k31ctl.fetch.proven import ProvenFiles
from k31ctl.fetch.record_check import record_findings, record_of
from k31ctl.fetch.repair import Repair, damaged_files, model_held, repair_files
from k31ctl.fetch.watch import Watch
from k31ctl.values import frozen

LEVELS: Final = tuple(Level)
_NO_RECORD: Final = "no record of sizes and digests here: contents are not proven"


@frozen
class Wanted:
    """How to verify: ``num_jobs`` files are read at once; ``again`` forgets what was proven."""

    deepest: Level = Level.STRUCTURE
    manifest: Path | None = None
    model_spec: str | None = None
    num_jobs: int = 0
    again: bool = False

    @property
    def jobs(self) -> int:
        """Files read at once: the processors of this machine unless told."""
        return self.num_jobs or os.cpu_count() or 1


@frozen
class Verification:
    """What was looked at, and everything that was found."""

    folder: str
    record: str
    deepest: Level
    digests: DigestCheck
    inspection: Inspection | None
    num_values_tensors: int
    values_bytes: int
    num_values_reused: int
    part_of: str | None
    journal_kept: bool
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    manifest: Manifest | None
    repair: Repair | None

    @property
    def is_partial(self) -> bool:
        """Whether the folder says that it holds a part of a checkpoint."""
        return self.part_of is not None

    @property
    def is_proven(self) -> bool:
        """Whether nothing that was looked at is damaged."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    def require_proven(self) -> None:
        """Raise what kept a repair from its end, or NotProvenError where something is damaged."""
        if self.repair is not None and self.repair.failure is not None:
            raise self.repair.failure
        if not self.is_proven:
            files = {finding.file for finding in self.findings}
            raise NotProvenError(
                f"{len(self.findings):,} findings in {len(files):,} files",
                where=self.folder,
                remedy=f"k31ctl verify {self.folder} --repair fetches what is damaged"
                if self.repair is None
                else "fetch the named files again, then verify again",
            )


def verify_checkpoint(
    store: Store, folder: Path, wanted: Wanted, *, watch: Watch | None = None
) -> Verification:
    """Verify a folder as deep as wanted; reads it, and writes nothing but its own journal.

    Raises InputError where there is nothing to verify, or no model to hold it against.
    """
    _require_folder(folder)
    watch = watch or Watch()
    record, expected = expected_files(folder, wanted.manifest)
    proven = ProvenFiles(folder, forget=wanted.again)
    try:
        digests = _digests(folder, wanted, expected, proven, watch)
        findings = [*digests.findings, *(extra_files(folder, expected) if expected else ())]
        manifest = record_of(folder, wanted.manifest)
        findings += record_findings(manifest) if manifest else ()
        warnings = [] if expected else [_NO_RECORD]
        inspection, marker, values = None, read_marker(folder), None
        if wanted.deepest in (Level.STRUCTURE, Level.VALUES):
            found = checkpoint_files(folder)
            model = model_held(_model(store, folder, wanted.model_spec), marker)
            inspection = inspect_files(folder, found, model)
            findings += _structure_findings(
                folder, found, inspection, is_partial=marker is not None
            )
            warnings += inspection.warnings
        if wanted.deepest is Level.VALUES:
            files = checkpoint_files(folder).files
            values = check_values(folder, files, num_jobs=wanted.jobs, proven=proven, watch=watch)
            findings += values.findings
    finally:
        proven.save()
    return Verification(
        folder=str(folder),
        record=record,
        deepest=wanted.deepest,
        digests=digests,
        inspection=inspection,
        num_values_tensors=values.num_tensors if values else 0,
        values_bytes=values.num_bytes if values else 0,
        num_values_reused=values.num_reused if values else 0,
        part_of=part_of(marker),
        journal_kept=proven.is_kept,
        findings=tuple(findings),
        warnings=tuple(warnings),
        manifest=manifest,
        repair=None,
    )


def repair_checkpoint(
    store: Store,
    folder: Path,
    wanted: Wanted,
    *,
    endpoints: Sequence[str],
    connections: int,
    max_retries: int,
    watch: Watch,
) -> Verification:
    """Mend what is damaged from where the record says it came, then verify the folder.

    Without damage no hub is asked. What kept a file from being mended is in the result; where the
    folder can then not even be looked at, it is raised.
    """
    _require_folder(folder)
    _, expected = expected_files(folder, wanted.manifest)
    proven = ProvenFiles(folder, forget=wanted.again)
    digests = _digests(folder, wanted, expected, proven, watch)
    proven.save()
    damaged = damaged_files(digests.findings, expected)
    repair = None
    if damaged:
        manifest = wanted.manifest or folder / MANIFEST_NAME
        record = read_manifest_file(manifest) if manifest.exists() else None
        if record is None:
            raise InputError(
                "nothing here says which repository the files are from",
                where=str(folder),
                remedy=f"fetch into the folder with k31ctl fetch: it leaves {MANIFEST_NAME}",
            )
        from k31ctl.fetch.hub_metadata import token_from_environment  # noqa: PLC0415  slow to import

        hub = Hub(
            endpoints=endpoints or (record.endpoint,),
            token=token_from_environment(),
            max_retries=max_retries,
        )
        try:
            repair = repair_files(
                hub, folder, record, damaged, connections=connections, watch=watch
            )
        finally:
            hub.stop()
    try:
        found = verify_checkpoint(store, folder, replace(wanted, again=False), watch=watch)
    except K31Error:
        if repair is not None and repair.failure is not None:
            raise repair.failure from None
        raise
    return replace(found, repair=repair)


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError("not a folder", where=str(folder), remedy="name a checkpoint's folder")


def _digests(
    folder: Path,
    wanted: Wanted,
    expected: Sequence[Expected],
    proven: ProvenFiles,
    watch: Watch,
) -> DigestCheck:
    return check_files(
        folder,
        expected,
        proven=proven,
        num_jobs=wanted.jobs,
        only_sizes=wanted.deepest is Level.SIZES,
        watch=watch,
    )


def _model(store: Store, folder: Path, model_spec: str | None) -> Model:
    return model_at(folder) if model_spec is None else load_model(store, model_spec)


def _structure_findings(
    folder: Path,
    found: CheckpointFiles,
    inspection: Inspection,
    *,
    is_partial: bool,
) -> Iterator[Finding]:
    """What headers, index and inventory say of each other; in a part, absent tensors are meant."""
    d = inspection.difference
    for each in inspection.corrupt:
        yield Finding(level=Level.STRUCTURE, file=each.file, problem=each.problem)
    if not is_partial:
        for name in d.missing:
            yield Finding(level=Level.STRUCTURE, file="", tensor=name, problem="is missing")
        if d.num_missing > len(d.missing):
            more = f"and {d.num_missing - len(d.missing):,} more tensors are missing"
            yield Finding(level=Level.STRUCTURE, file="", problem=more)
    wrong = {name: "is not of this model" for name in d.unexpected}
    for mismatch in d.mismatched:
        text = f"is {mismatch.found} instead of {mismatch.expected}"
        wrong |= dict.fromkeys(mismatch.names, text)
    if not wrong:
        return
    for header in read_headers(folder, found.files):
        for tensor, begin in zip(header.tensors, header.begins, strict=True):
            if tensor.name in wrong:
                start = header.data_start + begin
                yield Finding(
                    level=Level.STRUCTURE,
                    file=header.file,
                    tensor=tensor.name,
                    problem=wrong[tensor.name],
                    start=start,
                    end=start + tensor.num_bytes,
                )
