"""What one client may ask of the service, and all of them together."""

from k31ctl.values import frozen


@frozen
class Limits:
    """Bounds that keep one client from stopping the others.

    ``max_pending_bytes`` is what bodies may hold together while they are read and understood;
    one that holds no more than a connection's share of it is read all the same. ``max_requests``
    counts requests that are being answered or wait for it, and ``max_open_image_bytes`` is what
    their pixels may take. ``stall_s`` is how long a client may leave a stream unread, ``head_s``
    how long it may be silent, or take for its headers.
    """

    max_body_bytes: int = 48 * 2**20
    max_pending_bytes: int = 192 * 2**20
    max_requests: int = 256
    max_images: int = 16
    max_open_image_bytes: int = 2 * 2**30
    max_new_tokens: int = 131_072
    max_connections: int = 512
    head_s: float = 120.0
    body_s: float = 30.0
    request_s: float = 3600.0
    stall_s: float = 60.0
