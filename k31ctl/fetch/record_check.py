"""Whether a record agrees with itself: the licence texts in it, and the files it lists."""

from collections.abc import Iterator
from pathlib import Path

from k31ctl.errors import InputError
from k31ctl.fetch.findings import Finding, Level
from k31ctl.fetch.manifest import Manifest, read_manifest, read_manifest_file


def record_of(folder: Path, manifest: Path | None) -> Manifest | None:
    """Return the record to prove, None where there is none that names a repository.

    A list of files and digests alone can be proven too; it has no provenance to show.
    """
    try:
        return read_manifest(folder) if manifest is None else read_manifest_file(manifest)
    except InputError:
        return None


def record_findings(manifest: Manifest) -> Iterator[Finding]:
    """Yield what in a record contradicts itself: a licence text that was changed later."""
    digests = {file.path: file.sha256 for file in manifest.files}
    for text in manifest.licence_texts:
        if not text.is_whole:
            problem = "has another text in the record than the one that its digest is of"
            yield Finding(level=Level.DIGESTS, file=text.path, problem=problem)
        if digests.get(text.path) != text.sha256:
            problem = "has two digests in the record"
            yield Finding(level=Level.DIGESTS, file=text.path, problem=problem)
