"""What is known of a model's terms: the conclusion first, then each term with its source."""

import sys
from typing import Any, Final

from k31ctl.core.hardware import Source
from k31ctl.core.licence import Coverage, Licence, LicenceKind, Standing
from k31ctl.fetch.licence_check import FolderLicence, Terms
from k31ctl.report.envelope import envelope, plain
from k31ctl.report.lines import folded, printable

NO_ADVICE: Final = (
    "These are notes of what was read, in our words, and no legal advice: the licence's own text "
    "counts."
)
_READ: Final = {
    Standing.TEXT: "the publisher's text",
    Standing.COPY: "a copy of the text",
    Standing.QUOTED: "quoted by others",
    Standing.TAG: "label on the hub",
    Standing.REPORTED: "reported by others",
}
_KINDS: Final = {
    LicenceKind.STANDARD: "a standard licence",
    LicenceKind.MODIFIED: "a standard licence with changes",
    LicenceKind.OWN: "the publisher's own terms, no standard licence",
}


def show_terms(found: Terms, *, subject: str, as_json: bool) -> None:
    """Write what is known to standard output."""
    if as_json:
        result = terms_result(found)
        sys.stdout.write(
            envelope("licence", inputs={"subject": subject}, result=result, warnings=(NO_ADVICE,))
        )
        return
    sys.stdout.write("".join(f"{printable(line)}\n" for line in _text(found)))


def terms_result(found: Terms) -> dict[str, Any]:
    """The names and values that JSON sees."""
    licence, manifest = found.licence, found.manifest
    return {
        "repo": found.repo or None,
        "known": licence is not None,
        "licence": None if licence is None else plain(licence),
        "coverage": plain(licence.coverage(found.repo)) if licence else None,
        "folder": found.folder or None,
        "files": plain(found.files),
        "record": None
        if manifest is None
        else {
            "licence": manifest.licence,
            "commit": manifest.commit,
            "accepted_by": manifest.accepted_by,
            "accepted_at": manifest.accepted_at,
        },
    }


def _text(found: Terms) -> list[str]:
    cited = _Cited()
    lines = _head(found, cited)
    if found.licence is not None:
        lines += _known(found.licence, found.licence.coverage(found.repo), cited)
    if found.folder:
        lines += _folder(found)
    return [*lines, *cited.lines(), "", *folded(NO_ADVICE, indent="")]


class _Cited:
    """Sources, numbered as they are first named."""

    def __init__(self) -> None:
        self._marks: dict[Source, str] = {}

    def mark(self, source: Source) -> str:
        """Return how the text names a source."""
        return self._marks.setdefault(source, f"s{len(self._marks) + 1}")

    def lines(self) -> list[str]:
        """Return every source; an address is never broken."""
        lines = ["", "sources"] if self._marks else []
        for source, mark in self._marks.items():
            lines.append(f"  {mark}  {source.url}")
            said = f"read {source.checked}" + (f": {source.says}" if source.says else "")
            lines += folded(said, indent="      ")
        return lines


def _head(found: Terms, cited: _Cited) -> list[str]:
    licence = found.licence
    if licence is None:
        name = found.repo or found.folder
        told = f"{name}: nothing is known of its terms here."
        return [*folded(told, indent=""), "Read the licence file of the repository itself."]
    coverage = licence.coverage(found.repo)
    assert coverage is not None
    return [
        f"{found.repo}: {licence.name}",
        f"{_KINDS[licence.kind]}; {_READ[coverage.standing]} ({cited.mark(coverage.source)})",
        f"to look it up: {licence.text_url}",
    ]


def _known(licence: Licence, coverage: Coverage | None, cited: _Cited) -> list[str]:
    lines = ["", "known" if licence.terms else "known: nothing but the name"]
    for term in licence.terms:
        lines.append(f"  {term.id} ({_READ[term.standing]}, {cited.mark(term.source)})")
        lines += folded(term.says, indent="      ")
        if term.id == "display" and coverage is not None and coverage.shown_name:
            lines += folded(f'the name to show is "{coverage.shown_name}"', indent="      ")
    lines += ["", "not known"]
    for text in licence.unknown:
        first, *rest = folded(text, indent="    ")
        lines += [f"  - {first.strip()}", *rest]
    return lines


def _folder(found: Terms) -> list[str]:
    lines = ["", f"in {found.folder}"]
    if not found.files:
        lines.append("  no licence file")
    for file in found.files:
        lines += _file_lines(file, found.licence)
    manifest = found.manifest
    if manifest is None:
        return [*lines, "  no record of the download"]
    who = "nobody is recorded as having accepted the terms (fetch --accepted-by NAME)"
    if manifest.accepted_by:
        when = f" at {manifest.accepted_at}" if manifest.accepted_at else ""
        who = f"accepted by {manifest.accepted_by}{when}"
    return [*lines, *folded(f"recorded {manifest.fetched_at}: {who}", indent="  ")]


def _file_lines(file: FolderLicence, licence: Licence | None) -> list[str]:
    lines = [f"  {file.path}  sha256 {file.sha256}"]
    told = {
        None: "not in the record of the download",
        True: "as recorded when it was fetched",
        False: "NOT the file that was recorded when it was fetched",
    }[file.is_as_recorded]
    lines += folded(told, indent="      ")
    if licence is not None and licence.terms and file.is_readable:
        absent = [term.id for term in licence.terms if term.id not in file.terms_found]
        num, of = len(file.terms_found), len(licence.terms)
        text = f"has the words of {num} of the {of} terms above"
        lines += folded(f"{text}; not of {', '.join(absent)}" if absent else text, indent="      ")
    return lines
