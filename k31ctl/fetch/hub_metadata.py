"""A repository's commit and files, as huggingface_hub reads them."""

import os
from typing import Any, Final

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from k31ctl.errors import InputError, RefusedError
from k31ctl.fetch.hub import HubFile, Snapshot
from k31ctl.fetch.trouble import TransferError, broken, refused_status, unreachable

# The client under huggingface_hub changed its name between releases; the base of its errors is
# the one that huggingface_hub's own error derives from.
_CLIENT_ERROR: Final[type[BaseException]] = next(
    c for c in HfHubHTTPError.__mro__ if c.__name__ == "HTTPError"
)


def token_from_environment() -> str | None:
    """Return the token in HF_TOKEN or in huggingface_hub's token file."""
    return get_token()


def read_snapshot(
    repo: str, revision: str, *, endpoint: str, token: str | None, timeout_s: float
) -> Snapshot:
    """Return a repository at the commit that a revision stands for: one request.

    Raises TransferError where asking again may help, InputError and RefusedError otherwise.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    api = HfApi(endpoint=endpoint, token=token or False, library_name="k31ctl")
    where = f"{endpoint}/{repo}"
    try:
        info = api.model_info(repo, revision=revision, files_metadata=True, timeout=timeout_s)
    except HFValidationError:
        raise InputError(
            "not the name of a repository",
            where=repo[:200],
            remedy="write OWNER/NAME, or a model profile; k31ctl profiles list models shows them",
        ) from None
    except HfHubHTTPError as error:
        raise _failure(error, repo=repo, revision=revision, where=where) from None
    except (_CLIENT_ERROR, OSError) as error:
        raise unreachable(_reason(error), where=endpoint) from None
    except ValueError:
        raise broken("the answer is not what a hub says of a repository", where=where) from None
    return _snapshot(info, repo=repo, endpoint=endpoint, where=where)


def _snapshot(info: Any, *, repo: str, endpoint: str, where: str) -> Snapshot:
    if not info.sha or info.siblings is None:
        raise broken("the answer names no commit or no files", where=where)
    card = info.card_data or {}
    names = (card.get("license_name"), card.get("license"))
    return Snapshot(
        repo=repo,
        endpoint=endpoint,
        commit=info.sha,
        files=tuple(sorted((_file(s, where) for s in info.siblings), key=lambda f: f.path)),
        gated=str(info.gated) if info.gated else None,
        licence=next((str(name) for name in names if name), None),
    )


def _file(sibling: Any, where: str) -> HubFile:
    if not isinstance(sibling.size, int):
        raise broken(f"the answer has no size for {sibling.rfilename}", where=where)
    return HubFile(
        path=_safe(sibling.rfilename, where),
        size_bytes=sibling.size,
        sha256=sibling.lfs.sha256 if sibling.lfs else None,
        blob_id=None if sibling.lfs else sibling.blob_id,
    )


def _safe(path: str, where: str) -> str:
    """Return a path that stays inside the folder; raises InputError for any other."""
    parts = path.split("/")
    if "\0" in path or "\\" in path or any(part in ("", ".", "..") for part in parts):
        raise InputError(
            f"the repository has a file with an unsafe path: {path[:100]!r}",
            where=where,
            remedy="do not use this repository; a path must stay inside the folder",
        )
    return path


def _failure(
    error: HfHubHTTPError, *, repo: str, revision: str, where: str
) -> TransferError | InputError | RefusedError:
    status = error.response.status_code if error.response is not None else 0
    if isinstance(error, RevisionNotFoundError):
        return InputError(
            f"there is no revision {revision[:80]!r}",
            where=where,
            remedy="name a branch, a tag or a commit with --revision",
        )
    if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
        return InputError(
            f"there is no repository {repo} that this token may see",
            where=where,
            remedy="check the name; for a private repository put a token into HF_TOKEN "
            "or sign in with: hf auth login",
        )
    after = error.response.headers.get("Retry-After") if error.response is not None else None
    after_s = float(after) if after and after.isdigit() else None
    return refused_status(status or 500, where=where, after_s=after_s)


def _reason(error: BaseException) -> str:
    """Return the kind of a client's error in words, without addresses or headers."""
    name = type(error).__name__.removesuffix("Error").removesuffix("Exception")
    words = "".join(f" {c.lower()}" if c.isupper() else c for c in name).strip()
    return {"connect": "no connection", "o s": "no connection"}.get(words, words)
