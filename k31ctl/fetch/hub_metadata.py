"""A repository's commit and files, as a hub's documented endpoint tells them, and the token.

Why huggingface_hub is not asked for the former: docs/decisions/0008-one-question-by-our-own-wire.md
"""

import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from k31ctl.errors import InputError, RefusedError
from k31ctl.fetch.hub import HubFile, Snapshot
from k31ctl.fetch.journal import STATE_FOLDER
from k31ctl.fetch.manifest import MANIFEST_NAME
from k31ctl.fetch.redirects import MOST_REDIRECTS, REDIRECTS, headers_for, redirected, too_many
from k31ctl.fetch.safe_path import require_safe
from k31ctl.fetch.trouble import TransferError, broken, refused_status, unreachable
from k31ctl.fetch.wire import Response, Wire
from k31ctl.outside_json import parsed
from k31ctl.values import frozen

_TOKEN_VARIABLES: Final = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_NAME: Final = re.compile(r"(\b[\w.-]{1,96}\b/)?\b[\w.-]{1,96}\b", re.ASCII)
_NOT_IN_NAMES: Final = ("--", "..")
_COMMIT: Final = re.compile(r"[0-9A-Za-z]{1,64}")
_OK: Final = 200
_UNAUTHORISED: Final = 401
_MOST_BYTES: Final = 64 * 2**20
_PIECE_BYTES: Final = 64 * 1024


def token_from_environment() -> str | None:
    """Return the token that huggingface_hub would send.

    It is imported only where there is more to ask than a variable: a third of a second.
    """
    from huggingface_hub import constants  # noqa: PLC0415  only where a hub is asked

    if not os.environ.get("HF_OIDC_RESOURCE"):
        named = next((text for name in _TOKEN_VARIABLES if (text := os.environ.get(name))), "")
        token = named.replace("\r", "").replace("\n", "").strip()
        if token:
            return _sendable(token)
        if not Path(constants.HF_TOKEN_PATH).exists():
            return None
    from huggingface_hub import get_token  # noqa: PLC0415  slow to import

    found = get_token()
    return _sendable(found) if found else None


def _sendable(token: str) -> str:
    """Return a token that can stand in a header; raises InputError, which does not show it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(
            "the token has characters that no token has",
            where="HF_TOKEN, or the file that hf auth login writes",
            remedy="set HF_TOKEN to the token alone, or sign in again with: hf auth login",
        )
    return token


@frozen
class Question:
    """Which repository at which revision, and who is asked."""

    repo: str
    revision: str
    endpoint: str
    token: str | None

    @property
    def where(self) -> str:
        """What a message calls it."""
        return f"{self.endpoint}/{self.repo}"

    @property
    def url(self) -> str:
        """The address of the hub's documented endpoint, with sizes and digests asked for."""
        revision = quote(self.revision, safe="")
        return f"{self.endpoint}/api/models/{self.repo}/revision/{revision}?blobs=true"


def read_snapshot(wire: Wire, question: Question) -> Snapshot:
    """Return a repository at the commit that a revision stands for: one request.

    Raises TransferError where asking again may help, InputError and RefusedError otherwise.
    """
    from huggingface_hub import constants  # noqa: PLC0415  only where a hub is asked

    if not is_repository_name(question.repo):
        raise InputError(
            "not the name of a repository",
            where=question.repo[:200],
            remedy="write OWNER/NAME, or a model profile; k31ctl profiles list models shows them",
        )
    if constants.HF_HUB_OFFLINE:
        raise RefusedError(
            "HF_HUB_OFFLINE forbids to ask a hub",
            where=question.where,
            remedy="unset HF_HUB_OFFLINE, or copy the folder from a machine that has it",
        )
    try:
        document = parsed(_answer(wire, question))
    except ValueError:
        raise _no_repository(question) from None
    return _snapshot(document, question)


def is_repository_name(name: str) -> bool:
    """Whether a hub could have a repository of this name, by huggingface_hub's rule."""
    return (
        _NAME.fullmatch(name) is not None
        and not any(part in name for part in _NOT_IN_NAMES)
        and not name.endswith(".git")
    )


def _answer(wire: Wire, question: Question) -> bytes:
    """Return what the hub says, here or where it sends us; the token stays at the endpoint."""
    url, where = question.url, question.where
    for _ in range(MOST_REDIRECTS + 1):
        headers = headers_for(url, endpoint=question.endpoint, token=question.token)
        with closing(wire.get(url, headers, shown=where)) as response:
            if response.status == _OK:
                return _body(response, where)
            if response.status not in REDIRECTS:
                raise _failure(response, question)
            target = response.header("Location")
        url = redirected(url, target, where=where)
    raise too_many(where)


def _body(response: Response, where: str) -> bytes:
    body = bytearray()
    piece = memoryview(bytearray(_PIECE_BYTES))
    while count := response.readinto(piece):
        body += piece[:count]
        if len(body) > _MOST_BYTES:
            raise broken(f"the answer has more than {_MOST_BYTES:,} bytes", where=where)
    if response.length is not None and len(body) != response.length:
        raise unreachable("the connection was cut", where=where)
    return bytes(body)


def _snapshot(document: Any, question: Question) -> Snapshot:
    if not isinstance(document, dict):
        raise _no_repository(question)
    commit, siblings = document.get("sha"), document.get("siblings")
    named = isinstance(commit, str) and _COMMIT.fullmatch(commit) is not None
    if not named or not isinstance(siblings, list):
        raise broken("the answer names no commit or no files", where=question.where)
    files = [_file(entry, question.where) for entry in siblings]
    _require_a_tree([file.path for file in files], question.where)
    card, gated = document.get("cardData"), document.get("gated")
    terms = card if isinstance(card, dict) else {}
    names = (terms.get("license_name"), terms.get("license"))
    return Snapshot(
        repo=question.repo,
        endpoint=question.endpoint,
        commit=str(commit),
        files=tuple(sorted((f for f in files if not _is_ours(f.path)), key=lambda f: f.path)),
        gated=_on_one_line(gated) if gated else None,
        licence=next((_on_one_line(name) for name in names if name), None),
    )


def _no_repository(question: Question) -> TransferError:
    return broken("the answer is not what a hub says of a repository", where=question.where)


def _file(entry: Any, where: str) -> HubFile:
    path = entry.get("rfilename") if isinstance(entry, dict) else None
    if not isinstance(path, str):
        raise broken("the answer has a file without a name", where=where)
    size = entry.get("size")
    if type(size) is not int or size < 0:
        raise broken(f"the answer has no size for {path[:100]}", where=where)
    linked = entry.get("lfs")
    digest = linked.get("sha256") if isinstance(linked, dict) else None
    blob = entry.get("blobId")
    return HubFile(
        path=require_safe(path, holder="repository", where=where),
        size_bytes=size,
        sha256=digest if isinstance(digest, str) else None,
        blob_id=blob if isinstance(blob, str) and not linked else None,
    )


def _require_a_tree(paths: Sequence[str], where: str) -> None:
    """Raise InputError where two files cannot both be in one folder."""
    known = set(paths)
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    both = known & folders
    if len(known) == len(paths) and not both:
        return
    twice = min(both, default="") or next(p for p, n in Counter(paths).items() if n > 1)
    raise InputError(
        f"the repository has two files under one path: {twice[:100]!r}",
        where=where,
        remedy="do not use this repository; one of the two would overwrite the other",
    )


def _is_ours(path: str) -> bool:
    """Whether a name is one that the program itself writes, as after an upload of its folder."""
    return path.casefold().split("/")[0] in (STATE_FOLDER, MANIFEST_NAME)


def _on_one_line(text: Any) -> str:
    return "".join(c if c.isprintable() else " " for c in str(text)[:200])


def _failure(response: Response, question: Question) -> TransferError | InputError:
    """Return what a status and the hub's own code for it mean, as huggingface_hub reads them.

    Without a token, a hub answers 401 alike for what is private and for what is not there.
    """
    where, code = question.where, response.header("X-Error-Code")
    wrong_token = "Invalid credentials" in (response.header("X-Error-Message") or "")
    if code == "RevisionNotFound":
        return InputError(
            f"there is no revision {question.revision[:80]!r}",
            where=where,
            remedy="name a branch, a tag or a commit with --revision",
        )
    hidden = response.status == _UNAUTHORISED and code != "GatedRepo" and not wrong_token
    if code == "RepoNotFound" or hidden:
        return InputError(
            f"there is no repository {question.repo} that this token may see",
            where=where,
            remedy="check the name; for a private repository put a token into HF_TOKEN "
            "or sign in with: hf auth login",
        )
    return refused_status(response.status, where=where, after_s=response.retry_after_s)
