"""What goes wrong between us and a hub, and whether asking again can help."""

import errno
from typing import Final

from k31ctl.errors import EndpointError, InputError, K31Error, NotProvenError, RefusedError

_NOT_OURS: Final = (errno.EACCES, errno.EPERM, errno.EROFS)
_PASSING: Final = (408, 416)  # a request that took too long, a range that a mirror has not yet


class TransferError(Exception):
    """An answer that did not bring the bytes that were asked for.

    ``after_s`` is how long the server wants us to wait. ``final`` is the failure that it becomes
    where asking again does not help, or has not helped often enough.
    """

    def __init__(
        self,
        reason: str,
        *,
        final: K31Error,
        again: bool = True,
        after_s: float | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason, self.final, self.again, self.after_s = reason, final, again, after_s


class StoppedError(Exception):
    """The work was stopped from outside; nothing is wrong with it."""


def unreachable(reason: str, *, where: str) -> TransferError:
    """The connection failed, was cut or went silent."""
    final = EndpointError(
        f"the endpoint cannot be reached: {reason}",
        where=where,
        remedy="check the network and the proxy, or name a mirror with --endpoint; "
        "the same command goes on where this one stopped",
    )
    return TransferError(reason, final=final)


def untrusted(reason: str, *, where: str) -> TransferError:
    """The endpoint's certificate is not one that we trust; asking again does not change it."""
    final = EndpointError(
        f"the endpoint cannot be reached: its certificate is not trusted ({reason})",
        where=where,
        remedy="let SSL_CERT_FILE name a file with your own authority's certificate, "
        "or name another --endpoint",
    )
    return TransferError("its certificate is not trusted", final=final, again=False)


def broken(reason: str, *, where: str) -> TransferError:
    """The answer is not what the protocol allows, as a page from a proxy instead of data."""
    final = EndpointError(
        reason,
        where=where,
        remedy="look at what stands between here and the hub (a proxy, a login page), "
        "or name another --endpoint",
    )
    return TransferError(reason, final=final)


def changed(reason: str, *, where: str) -> TransferError:
    """The content is not the content of the commit that was asked for."""
    final = NotProvenError(
        reason,
        where=where,
        remedy="run the command again to resolve the revision anew, or name another --endpoint",
    )
    return TransferError(reason, final=final, again=False)


def refused_status(status: int, *, where: str, after_s: float | None) -> TransferError:
    """An answer whose status says that there are no bytes."""
    reason = f"the server answers {status}"
    if status in (401, 403):
        return TransferError(reason, final=_not_allowed(status, where=where), again=False)
    if status in (404, 410):
        return TransferError(
            reason,
            again=False,
            final=InputError(
                f"{reason}: there is no such file",
                where=where,
                remedy="check the repository and --revision, or name another --endpoint",
            ),
        )
    if status == 429:  # noqa: PLR2004 - too many requests
        final = EndpointError(
            "the server asks for fewer requests (429)",
            where=where,
            remedy="wait, use a token, or pass fewer --connections",
        )
        return TransferError(reason, final=final, after_s=after_s)
    final = EndpointError(reason, where=where, remedy="try again later, or name another --endpoint")
    again = status >= 500 or status in _PASSING  # noqa: PLR2004
    return TransferError(reason, final=final, again=again, after_s=after_s)


def _not_allowed(status: int, *, where: str) -> RefusedError:
    return RefusedError(
        f"the server does not give access ({status}): the repository is private or gated, "
        "or the token is not valid",
        where=where,
        remedy="accept the terms on the repository's page, then put a token that may read it "
        "into HF_TOKEN or sign in with: hf auth login",
    )


def disk_failure(error: OSError, *, where: str) -> RefusedError:
    """The disk is full, failing, gone or another's: every other file would meet the same."""
    what = (error.strerror or type(error).__name__).lower()
    remedy = "make room or mend the disk, then run the same command: it goes on from here"
    if error.errno in _NOT_OURS:
        remedy = "let the files in the folder be yours to write, or name another one with --to"
    return RefusedError(
        f"the disk does not take the data: {what}",
        where=str(error.filename or where),
        remedy=remedy,
        rule="fetch-disk",
    )


def unprovable(path: str, *, where: str) -> NotProvenError:
    """No digest is published for a file."""
    return NotProvenError(
        f"the endpoint says no digest of {path}: it could be fetched but not proven",
        where=where,
        remedy=f"name an endpoint that has digests, or leave the file out with --exclude {path}",
    )
