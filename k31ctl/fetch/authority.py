"""Whose word a download is held against: the hub's, or only that of a peer's record."""

from enum import StrEnum

from k31ctl.values import frozen


class AuthorityKind(StrEnum):
    """Who says what the bytes must be."""

    HUB = "hub"
    PEER = "peer"


@frozen
class Authority:
    """``source`` is the hub or the peer; ``reason`` is why no hub was asked, empty where one was.

    A peer's record proves that a copy is what the peer holds. Whether that is what was published
    rests on the peer.
    """

    kind: AuthorityKind
    source: str
    reason: str = ""
