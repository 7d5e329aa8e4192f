"""The address of an endpoint as a user writes it."""

from urllib.parse import urlsplit

from k31ctl.errors import UsageError
from k31ctl.fetch.wire import origin
from k31ctl.shown_address import shown_address


def endpoint_from(text: str) -> str:
    """Return an endpoint's address; raises UsageError where it is none or holds a password."""
    if not _is_endpoint(text):
        raise UsageError(
            "not the address of an endpoint",
            where=shown_address(text),
            remedy="write it as https://HOST or https://HOST/PATH, and the token into HF_TOKEN",
        )
    return text.rstrip("/")


def _is_endpoint(text: str) -> bool:
    """Whether files can be asked for below this address."""
    if any(c in "@?#\\" or c.isspace() or not c.isprintable() for c in text):
        return False
    try:
        scheme, host, _ = origin(text)
        host.encode("idna")  # as the socket will; an empty or overlong label has no such name
    except ValueError:
        return False
    return scheme in ("http", "https") and bool(host) and urlsplit(text).path.isascii()
