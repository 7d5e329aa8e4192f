"""A checkpoint on disk, proven level by level: sizes, digests, structure, values."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from k31ctl.catalog.models import load_model, model_at
from k31ctl.catalog.store import Store
from k31ctl.core.model import Model
from k31ctl.errors import InputError, NotProvenError
from k31ctl.fetch.deep import check_values
from k31ctl.fetch.digest_check import DigestCheck, check_files, expected_files, extra_files
from k31ctl.fetch.findings import Finding, Level, Severity
from k31ctl.fetch.headers import read_headers
from k31ctl.fetch.index import CheckpointFiles, checkpoint_files
from k31ctl.fetch.inspection import Inspection, inspect_files
from k31ctl.fetch.manifest import Manifest
from k31ctl.fetch.partial_marker import read_marker
from k31ctl.fetch.proven import ProvenFiles
from k31ctl.fetch.record_check import record_findings, record_of
from k31ctl.values import frozen

LEVELS: Final = tuple(Level)


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
    is_partial: bool
    journal_kept: bool
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]
    manifest: Manifest | None = None

    @property
    def is_proven(self) -> bool:
        """Whether nothing that was looked at is damaged."""
        return not any(finding.severity is Severity.ERROR for finding in self.findings)

    def require_proven(self) -> None:
        """Raise NotProvenError where something is damaged."""
        if not self.is_proven:
            files = {finding.file for finding in self.findings}
            raise NotProvenError(
                f"{len(self.findings):,} findings in {len(files):,} files",
                where=self.folder,
                remedy="fetch the named files again, then verify again",
            )


def verify_checkpoint(
    store: Store, folder: Path, wanted: Wanted, *, on_bytes: Callable[[int], None] = lambda _: None
) -> Verification:
    """Verify a folder as deep as wanted; reads it, and writes nothing but its own journal.

    Raises InputError where there is nothing to verify, or no model to hold it against.
    """
    if not folder.is_dir():
        raise InputError("not a folder", where=str(folder), remedy="name a checkpoint's folder")
    record, expected = expected_files(folder, wanted.manifest)
    proven = ProvenFiles(folder, forget=wanted.again)
    try:
        digests = check_files(
            folder,
            expected,
            proven=proven,
            num_jobs=wanted.jobs,
            only_sizes=wanted.deepest is Level.SIZES,
            on_bytes=on_bytes,
        )
    finally:
        proven.save()
    findings = [*digests.findings, *(extra_files(folder, expected) if expected else ())]
    manifest = record_of(folder, wanted.manifest)
    findings += record_findings(manifest) if manifest else ()
    warnings = [] if expected else ["no record of sizes and digests here: contents are not proven"]
    inspection, marker = None, read_marker(folder)
    if wanted.deepest in (Level.STRUCTURE, Level.VALUES):
        found = checkpoint_files(folder)
        inspection = inspect_files(folder, found, _model(store, folder, wanted.model_spec))
        findings += _structure_findings(folder, found, inspection, is_partial=marker is not None)
        warnings += inspection.warnings
    num_tensors = num_bytes = 0
    if wanted.deepest is Level.VALUES:
        values = check_values(folder, checkpoint_files(folder).files, num_jobs=wanted.jobs)
        findings += values.findings
        num_tensors, num_bytes = values.num_tensors, values.num_bytes
    return Verification(
        folder=str(folder),
        record=record,
        deepest=wanted.deepest,
        digests=digests,
        inspection=inspection,
        num_values_tensors=num_tensors,
        values_bytes=num_bytes,
        is_partial=marker is not None,
        journal_kept=proven.is_kept,
        findings=tuple(findings),
        warnings=tuple(warnings),
        manifest=manifest,
    )


def _model(store: Store, folder: Path, model_spec: str | None) -> Model:
    return model_at(folder) if model_spec is None else load_model(store, model_spec)


def _structure_findings(
    folder: Path, found: CheckpointFiles, inspection: Inspection, *, is_partial: bool
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
