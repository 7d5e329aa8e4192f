"""The structure of a checkpoint on disk: headers, index and, where it is known, the model."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from k31ctl.catalog.json_text import CONFIG_NAME
from k31ctl.catalog.models import load_model, model_at
from k31ctl.catalog.store import Store
from k31ctl.core.finding import Severity
from k31ctl.core.model import Model
from k31ctl.errors import InputError
from k31ctl.fetch.findings import Finding, Level
from k31ctl.fetch.headers import read_headers
from k31ctl.fetch.index import INDEX_NAME, CheckpointFiles, checkpoint_files
from k31ctl.fetch.inspection import (
    Corruption,
    Inspection,
    check_headers,
    inspect_files,
    no_collection,
)
from k31ctl.fetch.repair import model_held
from k31ctl.units import counted
from k31ctl.values import frozen


@frozen
class Basis:
    """What the structure is held against; ``findings`` say what of it is not there."""

    found: CheckpointFiles | None
    model: Model | None
    is_partial: bool
    findings: tuple[Finding, ...]

    @property
    def file_names(self) -> tuple[str, ...]:
        """The files with tensors; none where the index cannot be read."""
        return self.found.files if self.found is not None else ()


@frozen
class Structure:
    """What the headers hold; ``inspection`` is there where they were held against a model."""

    num_files: int
    num_tensors: int
    total_bytes: int
    inspection: Inspection | None
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]


def basis_of(
    store: Store,
    folder: Path,
    model_spec: str | None,
    marker: dict[str, Any] | None,
    *,
    has_record: bool,
) -> Basis:
    """Find the files and the model; what cannot be found is told, not raised.

    Raises InputError for a model that is named and is none, and for a folder without a record
    that holds no checkpoint: there is nothing to verify.
    """
    findings: list[Finding] = []
    found = model = None
    try:
        found = checkpoint_files(folder)
    except InputError as error:
        if not has_record or not os.access(folder, os.R_OK):
            raise
        findings.append(_no_files(folder, error))
    if model_spec is not None:
        model = load_model(store, model_spec)
    elif found is not None:
        try:
            model = model_at(folder)
        except InputError as error:
            findings.append(_no_model(error))
    return Basis(
        found=found,
        model=None if model is None else model_held(model, marker),
        is_partial=marker is not None,
        findings=tuple(findings),
    )


def check_structure(folder: Path, basis: Basis) -> Structure:
    """Read every header, and hold it against itself, the index and the model, as far as known."""
    if basis.found is None:
        return Structure(
            num_files=0,
            num_tensors=0,
            total_bytes=0,
            inspection=None,
            findings=basis.findings,
            warnings=(),
        )
    inspection = None
    if basis.model is not None:
        inspection = inspect_files(folder, basis.found, basis.model)
        difference, corrupt, warnings = (
            inspection.difference,
            inspection.corrupt,
            inspection.warnings,
        )
    else:
        with no_collection():
            check = check_headers(basis.found, (), read_headers(folder, basis.found.files))
        difference, corrupt, warnings = check.difference, check.corrupt, check.warnings
    findings = [*basis.findings, *_faults(corrupt)]
    if inspection is not None:
        findings += _findings(folder, basis.file_names, inspection, is_partial=basis.is_partial)
    return Structure(
        num_files=len(basis.file_names),
        num_tensors=difference.num_tensors,
        total_bytes=difference.total_bytes,
        inspection=inspection,
        findings=tuple(findings),
        warnings=warnings,
    )


def _no_files(folder: Path, error: InputError) -> Finding:
    """An index that cannot be read is damage; a folder without weights may be meant so."""
    if os.path.lexists(folder / INDEX_NAME):
        problem = error.what.removeprefix("the index ")
        return Finding(level=Level.STRUCTURE, file=INDEX_NAME, problem=problem)
    problem = "has no safetensors file; structure not looked at"
    return Finding(level=Level.STRUCTURE, file="", problem=problem, severity=Severity.WARNING)


def _no_model(error: InputError) -> Finding:
    return Finding(
        level=Level.STRUCTURE,
        file=CONFIG_NAME,
        problem=f"tells no known model; structure not held against a model: {error.what}",
        severity=Severity.WARNING,
    )


def _faults(corrupt: Sequence[Corruption]) -> Iterator[Finding]:
    for each in corrupt:
        yield Finding(level=Level.STRUCTURE, file=each.file, problem=each.problem)


def _findings(
    folder: Path, files: Sequence[str], inspection: Inspection, *, is_partial: bool
) -> Iterator[Finding]:
    """What the inventory says of the headers; in a part, absent tensors are meant."""
    d = inspection.difference
    if not is_partial:
        for name in d.missing:
            yield Finding(level=Level.STRUCTURE, file="", tensor=name, problem="is missing")
        if d.num_missing > len(d.missing):
            more = d.num_missing - len(d.missing)
            text = f"and {counted(more, 'more tensor')} missing"
            yield Finding(level=Level.STRUCTURE, file="", problem=text)
    wrong = {name: "is not of this model" for name in d.unexpected}
    for mismatch in d.mismatched:
        text = f"is {mismatch.found} instead of {mismatch.expected}"
        wrong |= dict.fromkeys(mismatch.names, text)
    if not wrong:
        return
    for header in read_headers(folder, files):
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
