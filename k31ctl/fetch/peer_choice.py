"""From what the user names to where the bytes come from."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from k31ctl.errors import UsageError
from k31ctl.fetch.hub import Hub
from k31ctl.fetch.object_store import is_store_url
from k31ctl.fetch.peer_hub import PeerHub
from k31ctl.fetch.peers import FolderPeer, Peer, UrlPeer
from k31ctl.values import frozen

TOKEN_VARIABLE: Final = "K31CTL_PEER_TOKEN"


@frozen
class Network:
    """How a hub and its peers are asked."""

    endpoints: tuple[str, ...]
    token: str | None
    stall_s: float
    max_retries: int
    on_retry: Callable[[str, str, float], None] | None = None


def peer_token() -> str | None:
    """Return the token between peers: the hub's own is never sent to one."""
    return os.environ.get(TOKEN_VARIABLE) or None


def hub_for(
    network: Network, *, peers: Sequence[str], is_offline: bool, folder: Path | None
) -> Hub:
    """Return the hub, behind the named peers where there are any.

    Raises UsageError for a peer that is the target itself, and for no source at all.
    """
    if not peers and is_offline:
        raise UsageError(
            "without the hub and without a peer there is nothing to fetch from",
            where="--offline",
            remedy="name a folder or a URL with --from-peer",
        )
    made: Callable[..., Hub] = Hub
    if peers:
        made = partial(
            PeerHub, [_peer(spec, network, folder) for spec in peers], is_offline=is_offline
        )
    return made(
        endpoints=network.endpoints,
        token=network.token,
        stall_s=network.stall_s,
        timeout_s=min(network.stall_s, 10.0),
        max_retries=network.max_retries,
        on_retry=network.on_retry,
    )


def _peer(spec: str, network: Network, folder: Path | None) -> Peer:
    if spec.startswith(("http://", "https://")):
        return UrlPeer(spec, token=peer_token(), stall_s=network.stall_s)
    if is_store_url(spec):
        from k31ctl.fetch.store_peer import StorePeer  # noqa: PLC0415  only for a store

        return StorePeer(spec)
    path = Path(spec)
    if folder is not None and path.resolve() == folder.resolve():
        raise UsageError(
            "a folder cannot be its own peer",
            where=f"--from-peer {spec}",
            remedy="name another folder; what lies in the target is checked anyway",
        )
    return FolderPeer(path)
