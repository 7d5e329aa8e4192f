"""What is known of a licence's terms, from where, and what is not known."""

from enum import StrEnum

from k31ctl.core.hardware import Source
from k31ctl.values import frozen


class Standing(StrEnum):
    """How close to the licence's own text a statement was read."""

    TEXT = "text"
    COPY = "copy"
    QUOTED = "quoted"
    TAG = "tag"
    REPORTED = "reported"


class LicenceKind(StrEnum):
    """Whether a licence is a standard one, a changed one, or the publisher's own."""

    STANDARD = "standard"
    MODIFIED = "modified"
    OWN = "own"


@frozen
class Term:
    """One condition or permission in our words; ``phrase`` are words of the text that carry it."""

    id: str
    says: str
    standing: Standing
    phrase: str
    source: Source


@frozen
class Coverage:
    """A repository that is under the licence; ``shown_name`` is what a clause wants displayed."""

    repo: str
    standing: Standing
    source: Source
    shown_name: str = ""


@frozen
class Licence:
    """A licence; ``tag`` is how a hub labels it."""

    id: str
    name: str
    tag: str
    kind: LicenceKind
    publisher: str
    text_url: str
    covers: tuple[Coverage, ...]
    terms: tuple[Term, ...]
    unknown: tuple[str, ...]
    sources: tuple[Source, ...]

    def coverage(self, repo: str) -> Coverage | None:
        """Return the entry of a repository, in any case of letters."""
        return next((c for c in self.covers if c.repo.casefold() == repo.casefold()), None)


def phrases_found(licence: Licence, text: str) -> tuple[str, ...]:
    """Return the ids of the terms whose words stand in a text, whatever its line breaks."""
    flat = " ".join(text.split()).casefold()
    return tuple(
        term.id for term in licence.terms if " ".join(term.phrase.split()).casefold() in flat
    )
