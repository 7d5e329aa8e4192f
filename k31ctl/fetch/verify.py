"""A checkpoint on disk, proven level by level: sizes, digests, structure, values."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from k31ctl.catalog.models import load_model
from k31ctl.catalog.store import Store
from k31ctl.core.finding import Severity
from k31ctl.errors import InputError, K31Error, NotProvenError
from k31ctl.fetch.deep import check_values
from k31ctl.fetch.digest_check import (
    NO_DIGESTS,
    DigestCheck,
    Expected,
    check_files,
    expected_files,
    extra_files,
)
from k31ctl.fetch.findings import Finding, Level
from k31ctl.fetch.hub import Hub
from k31ctl.fetch.manifest import MANIFEST_NAME, Manifest, read_manifest_file
from k31ctl.fetch.partial_marker import part_of, read_marker
from k31ctl.fetch.proven import ProvenFiles
from k31ctl.fetch.record_check import record_findings, record_of
from k31ctl.fetch.repair import Repair, damaged_files, repair_files
from k31ctl.fetch.structure import Structure, basis_of, check_structure
from k31ctl.fetch.watch import Watch
from k31ctl.units import counted
from k31ctl.values import frozen

LEVELS: Final = tuple(Level)
_NO_RECORD: Final = "no record of sizes and digests here: contents are not proven"
_NOT_REPAIRED: Final = (
    "nothing was repaired: no record here says where the files are from; k31ctl fetch REPO "
    "--to DIR fetches what is not as published, and leaves a record"
)


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

    @property
    def looks_at_structure(self) -> bool:
        """Whether headers are read too."""
        return self.deepest in (Level.STRUCTURE, Level.VALUES)


@frozen
class Verification:
    """What was looked at, and everything that was found."""

    folder: str
    record: str
    deepest: Level
    digests: DigestCheck
    structure: Structure | None
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
            errors = [f for f in self.findings if f.severity is Severity.ERROR]
            files = {finding.file for finding in errors if finding.file}
            place = f" in {counted(len(files), 'file')}" if files else ""
            raise NotProvenError(
                f"{counted(len(errors), 'error')}{place}", where=self.folder, remedy=self._remedy
            )

    @property
    def _remedy(self) -> str:
        if not self.record:
            return f"k31ctl fetch REPO --to {self.folder} fetches what is not as published"
        if not self.digests.num_files:
            return "fetch into the folder with k31ctl fetch: it renews the record"
        if self.repair is None:
            return f"k31ctl verify {self.folder} --repair fetches what is damaged"
        return "fetch the named files again, then verify again"


def verify_checkpoint(
    store: Store, folder: Path, wanted: Wanted, *, watch: Watch | None = None
) -> Verification:
    """Verify a folder as deep as wanted; reads it, and writes nothing but its own journal.

    Raises InputError where there is nothing to verify, or no model where one is named; a folder
    without a known model is told in a finding.
    """
    _require_folder(folder)
    watch = watch or Watch()
    record, expected = expected_files(folder, wanted.manifest)
    marker, basis, structure, values = read_marker(folder), None, None, None
    if wanted.looks_at_structure:  # what is wrong with the request is told before hours of reading
        basis = basis_of(store, folder, wanted.model_spec, marker, has_record=bool(record))
    proven = ProvenFiles(folder, forget=wanted.again)
    try:
        digests = _digests(folder, wanted, record, expected, proven, watch)
        findings = [*digests.findings, *(extra_files(folder, expected) if record else ())]
        manifest = record_of(folder, wanted.manifest)
        findings += record_findings(manifest) if manifest else ()
        warnings = [] if record else [_NO_RECORD]
        if basis is not None:
            structure = check_structure(folder, basis)
            findings += structure.findings
            warnings += structure.warnings
        if basis is not None and wanted.deepest is Level.VALUES:
            files = basis.file_names
            values = check_values(folder, files, num_jobs=wanted.jobs, proven=proven, watch=watch)
            findings += values.findings
    finally:
        proven.save()
    return Verification(
        folder=str(folder),
        record=record,
        deepest=wanted.deepest,
        digests=digests,
        structure=structure,
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
    record_name, expected = expected_files(folder, wanted.manifest)
    if wanted.model_spec is not None and wanted.looks_at_structure:
        load_model(store, wanted.model_spec)  # a wrong name is told before anything is fetched
    proven = ProvenFiles(folder, forget=wanted.again)
    digests = _digests(folder, wanted, record_name, expected, proven, watch)
    proven.save()
    damaged = [f for f in damaged_files(digests.findings, expected) if f.has_sha256]
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
    warnings = found.warnings if found.record else (*found.warnings, _NOT_REPAIRED)
    return replace(found, repair=repair, warnings=warnings)


def _require_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise InputError("not a folder", where=str(folder), remedy="name a checkpoint's folder")


def _digests(
    folder: Path,
    wanted: Wanted,
    record: str,
    expected: Sequence[Expected],
    proven: ProvenFiles,
    watch: Watch,
) -> DigestCheck:
    if not record:
        return NO_DIGESTS
    return check_files(
        folder,
        expected,
        proven=proven,
        num_jobs=wanted.jobs,
        only_sizes=wanted.deepest is Level.SIZES,
        watch=watch,
        record_name=Path(record).name,
    )
