"""The files of a folder that hold a licence, with their text and digest."""

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from k31ctl.regular_file import read_regular
from k31ctl.values import frozen

_NAMES: Final = ("license", "licence", "copying", "license-model", "license-code", "notice")
_MAX_BYTES: Final = 2**20


@frozen
class LicenceText:
    """A licence file; ``text`` is None where it is no UTF-8 or larger than 1 MiB.

    ``sha256`` is of the file's bytes, so that it equals the entry in the list of files.
    """

    path: str
    sha256: str
    text: str | None

    @property
    def is_whole(self) -> bool:
        """Whether the text is the one that the digest is of."""
        return self.text is None or _digest(self.text.encode()) == self.sha256


def is_licence(path: str) -> bool:
    """Whether a file's name says that it holds terms."""
    return path.rpartition("/")[2].lower().split(".")[0] in _NAMES


def licence_text(folder: Path, path: str, *, sha256: str) -> LicenceText:
    """Return a proven licence file with its text."""
    try:
        content = read_regular(folder / path, most_bytes=_MAX_BYTES)
    except (OSError, ValueError):
        content = None
    return licence_text_of(path, content, sha256=sha256)


def licence_text_of(path: str, content: bytes | None, *, sha256: str) -> LicenceText:
    """Return a licence file with its content, where that has the digest and is text."""
    text = None
    if content is not None and _digest(content) == sha256:
        with suppress(UnicodeDecodeError):
            text = content.decode()
    return LicenceText(path=path, sha256=sha256, text=text)


def licence_texts_in(folder: Path) -> tuple[LicenceText, ...]:
    """Return the licence files at the top of a folder, by name."""
    return tuple(_read(path) for path in sorted(_regular_files(folder)) if is_licence(path.name))


def _regular_files(folder: Path) -> Iterable[Path]:
    return (path for path in folder.iterdir() if path.is_file())


def _read(path: Path) -> LicenceText:
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    return licence_text(path.parent, path.name, sha256=digest)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
