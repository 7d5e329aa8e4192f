"""What the headers of a folder hold, against what its model needs."""

import gc
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from k31ctl.catalog.models import load_model, model_at
from k31ctl.catalog.store import Store
from k31ctl.core.difference import Comparison, Difference
from k31ctl.core.model import Model
from k31ctl.core.tensors import TensorTemplate
from k31ctl.errors import NotProvenError, UsageError
from k31ctl.fetch.headers import Header, read_headers
from k31ctl.fetch.index import CheckpointFiles, IndexCheck, checkpoint_files
from k31ctl.values import frozen

NAMES_CAP: Final = 1000
HUB_MARK: Final = "hub:"
_HUB_NAME: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@frozen
class Corruption:
    """One thing that is wrong with one file."""

    file: str
    problem: str


@frozen
class HeaderCheck:
    """What headers hold, against templates and index."""

    header_bytes: int
    difference: Difference
    corrupt: tuple[Corruption, ...]
    warnings: tuple[str, ...]


@frozen
class Inspection:
    """A folder, the model it is held against, and every difference."""

    folder: str
    model: Model
    num_files: int
    header_bytes: int
    difference: Difference
    corrupt: tuple[Corruption, ...]
    warnings: tuple[str, ...]

    @property
    def is_proven(self) -> bool:
        """Whether the headers are exactly what the model needs."""
        return self.difference.is_equal and not self.corrupt

    def require_proven(self) -> None:
        """Raise NotProvenError where the headers are not exactly what the model needs."""
        if not self.is_proven:
            raise NotProvenError(
                f"the headers are not those of {self.model.name}",
                where=self.folder,
                remedy="fetch the named files again, or name the right model with --model",
            )


def inspect_checkpoint(store: Store, checkpoint: str, *, model_spec: str | None) -> Inspection:
    """Inspect a folder against a model, or against the folder's own config.json.

    Raises UsageError for what may be meant as a repository on a hub.
    """
    folder = Path(checkpoint)
    if _HUB_NAME.fullmatch(checkpoint) is not None and not os.path.lexists(folder):
        raise UsageError(
            "there is no such folder",
            where=f"CHECKPOINT {checkpoint[:120]}",
            remedy=f"name a folder, or {HUB_MARK}{checkpoint[:120]} for a repository on a hub",
        )
    files = checkpoint_files(folder)
    model = model_at(folder) if model_spec is None else load_model(store, model_spec)
    return inspect_files(folder, files, model)


def inspect_files(folder: Path, found: CheckpointFiles, model: Model) -> Inspection:
    """Read every header and compare it with the model's tensors and with the index."""
    with no_collection():
        headers = read_headers(folder, found.files)
        return inspect_headers(str(folder), found, model, headers)


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python from looking for cycles among half a million tuples that have none."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def inspect_headers(
    place: str, found: CheckpointFiles, model: Model, headers: Iterable[Header]
) -> Inspection:
    """Compare headers, from wherever they come, with the model's tensors and with the index."""
    check = check_headers(found, model.templates, headers)
    return Inspection(
        folder=place,
        model=model,
        num_files=len(found.files),
        header_bytes=check.header_bytes,
        difference=check.difference,
        corrupt=check.corrupt,
        warnings=check.warnings,
    )


def check_headers(
    found: CheckpointFiles, templates: Sequence[TensorTemplate], headers: Iterable[Header]
) -> HeaderCheck:
    """Compare headers with templates and with the index; takes the index's entries away.

    Without templates every tensor is unexpected; the rest of the answer stands.
    """
    index = IndexCheck(found.weight_map) if found.weight_map is not None else None
    comparison = Comparison(templates, cap=NAMES_CAP)
    corrupt: list[Corruption] = []
    broken: set[str] = set()
    header_bytes = 0
    for header in headers:
        header_bytes += header.header_bytes
        comparison.add(header.tensors)
        problems = list(header.problems)
        if problems and not header.tensors:
            broken.add(header.file)
        if index is not None:
            problems += index.problems_of(header.file, header.tensors)
        corrupt += [Corruption(file=header.file, problem=problem) for problem in problems]
    difference = comparison.result()
    if index is not None:
        corrupt += [
            Corruption(file=file, problem=problem)
            for file, problem in index.leftovers()
            if file not in broken
        ]
    corrupt += _duplicates(difference)
    return HeaderCheck(
        header_bytes=header_bytes,
        difference=difference,
        corrupt=tuple(corrupt),
        warnings=found.warnings + _size_warnings(found.total_size, difference.total_bytes),
    )


def _duplicates(difference: Difference) -> list[Corruption]:
    if not difference.num_duplicates:
        return []
    count, first = difference.num_duplicates, difference.duplicates[0]
    problem = f"{count:,} tensors are in more than one file, the first: {first[:120]}"
    return [Corruption(file="", problem=problem)]


def _size_warnings(stated: int | None, total_bytes: int) -> tuple[str, ...]:
    if stated is None or stated == total_bytes:
        return ()
    return (
        f"total_size in the index is wrong by {stated - total_bytes:+,} bytes: "
        f"it states {stated:,}, the tensors take {total_bytes:,}",
    )
