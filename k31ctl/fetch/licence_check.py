"""The terms of a model, and the licence files that lie in a folder beside its weights."""

from pathlib import Path

from k31ctl.catalog.licences import licence_of, repository_named
from k31ctl.catalog.store import Store
from k31ctl.core.licence import Licence, phrases_found
from k31ctl.errors import InputError
from k31ctl.fetch.licence_text import LicenceText, licence_texts_in
from k31ctl.fetch.manifest import Manifest, read_manifest
from k31ctl.values import frozen


@frozen
class FolderLicence:
    """A licence file as it lies there.

    ``is_as_recorded`` says whether it has the digest of the record, None without a record;
    ``terms_found`` are the known terms whose words are in it.
    """

    path: str
    sha256: str
    is_as_recorded: bool | None
    terms_found: tuple[str, ...]
    is_readable: bool


@frozen
class Terms:
    """What is known: ``repo`` is empty where a folder does not say what it holds."""

    repo: str
    licence: Licence | None
    folder: str
    files: tuple[FolderLicence, ...]
    manifest: Manifest | None


def terms_of(store: Store, spec: str, *, model: str | None = None) -> Terms:
    """Return what is known of the terms of a model, a draft, a repository or a folder.

    ``model`` names what a folder without a record holds. Raises ProfileError for an unknown name.
    """
    folder = Path(spec)
    if spec not in store.paths("models") and folder.is_dir():
        return _of_folder(store, folder, model=model)
    if model is not None:
        raise InputError(
            "--model says what a folder holds, and this is no folder",
            where=spec[:200],
            remedy="name a folder, or leave out --model",
        )
    repo = repository_named(store, spec)
    return Terms(repo=repo, licence=licence_of(store, repo), folder="", files=(), manifest=None)


def _of_folder(store: Store, folder: Path, *, model: str | None) -> Terms:
    manifest = read_manifest(folder)
    repo = manifest.repo if manifest is not None else ""
    repo = repository_named(store, model) if model is not None else repo
    licence = licence_of(store, repo) if repo else None
    return Terms(
        repo=repo,
        licence=licence,
        folder=str(folder),
        files=tuple(_file(found, licence, manifest) for found in licence_texts_in(folder)),
        manifest=manifest,
    )


def _file(found: LicenceText, licence: Licence | None, manifest: Manifest | None) -> FolderLicence:
    recorded = {file.path: file.sha256 for file in manifest.files} if manifest else {}
    known = recorded.get(found.path)
    return FolderLicence(
        path=found.path,
        sha256=found.sha256,
        is_as_recorded=None if known is None else known == found.sha256,
        terms_found=phrases_found(licence, found.text) if licence and found.text else (),
        is_readable=found.text is not None,
    )
