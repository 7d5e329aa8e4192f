"""The records of a part: index, mark, manifest, and the note that its files were read."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from k31ctl import __version__
from k31ctl.fetch.digest_check import digest_of
from k31ctl.fetch.index import INDEX_NAME
from k31ctl.fetch.journal import sync_folder
from k31ctl.fetch.licence_text import is_licence, licence_text
from k31ctl.fetch.manifest import Manifest, ManifestFile, write_manifest
from k31ctl.fetch.marks import note_marks
from k31ctl.fetch.part_plan import PartPlan, WantedPart
from k31ctl.fetch.partial_marker import MARKER_NAME, MARKER_SCHEMA
from k31ctl.fetch.proven import ProvenFiles, Stamp, stamp_of
from k31ctl.fetch.selection import Selection


def write_records(
    folder: Path,
    plan: PartPlan,
    selection: Selection,
    digests: Mapping[str, str],
    *,
    marks: Mapping[str, Sequence[str]],
    accepted_by: str | None,
    now: Callable[[], str],
) -> None:
    """Write what belongs beside the weights of a part; ``digests`` are of the weight files."""
    contents = small_contents(plan.wanted)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    (folder / MARKER_NAME).write_text(json.dumps(_marker(plan, selection), indent=1) + "\n")
    others = [MARKER_NAME, *contents]
    found = dict(digests) | {name: digest_of(folder / name, "") for name in others}
    files = tuple(
        ManifestFile(path=name, size_bytes=(folder / name).stat().st_size, sha256=digest)
        for name, digest in sorted(found.items())
    )
    terms = tuple(name for name in sorted(found) if is_licence(name))
    fetched_at = now()
    manifest = Manifest(
        repo=plan.repo,
        endpoint=plan.endpoint,
        revision=plan.revision,
        commit=plan.commit,
        fetched_at=fetched_at,
        version=__version__,
        licence=plan.licence,
        gated=plan.gated,
        licence_files=terms,
        accepted_by=accepted_by,
        files=files,
        is_complete=False,
        accepted_at=fetched_at if accepted_by else None,
        licence_texts=tuple(licence_text(folder, name, sha256=found[name]) for name in terms),
    )
    write_manifest(folder, manifest)
    _note_proven(folder, found)
    for name, noted in marks.items():
        note_marks(folder, name, digests[name], noted)
    sync_folder(folder)


def small_contents(wanted: WantedPart) -> dict[str, bytes]:
    """The configuration, the terms, and the index of what is in the part."""
    index = {
        "metadata": {"total_size": sum(each.written_bytes for each in wanted.chosen)},
        "weight_map": {each.name: each.file for each in wanted.chosen},
    }
    return dict(wanted.small) | {INDEX_NAME: (json.dumps(index, indent=1) + "\n").encode()}


def _marker(plan: PartPlan, selection: Selection) -> dict[str, object]:
    rank = selection.rank
    layout = plan.wanted.layout
    return {
        "schema": MARKER_SCHEMA,
        "version": __version__,
        "key": plan.wanted.key,
        "source": plan.label,
        "commit": plan.commit or None,
        "selection": selection.text,
        "layers": selection.layers,
        "experts": selection.experts,
        "tensors": list(selection.globs),
        "rank": None if rank is None else {"rank": rank.rank, "tp": rank.tp, "pp": rank.pp},
        "num_tensors": layout.num_tensors,
        "files": [file.path for file in layout.files],
        "whole_files": [file.path for file in layout.files if file.is_whole],
        "sliced": any(each.part is not None for each in plan.wanted.chosen),
    }


def _note_proven(folder: Path, digests: Mapping[str, str]) -> None:
    """Spare the next verification what was hashed a moment ago."""
    proven = ProvenFiles(folder, forget=True)
    for name, digest in digests.items():
        stamp = stamp_of(folder / name)
        if isinstance(stamp, Stamp):
            proven.add(name, stamp, digest)
    proven.save()
