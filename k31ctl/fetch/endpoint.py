"""The address of an endpoint as a user writes it."""

import re
from typing import Final
from urllib.parse import urlsplit

from k31ctl.errors import UsageError
from k31ctl.fetch.wire import origin

_NOT_SHOWN: Final = re.compile(r"[?#].*", re.DOTALL)  # a query may hold a signature


def endpoint_from(text: str) -> str:
    """Return an endpoint's address; raises UsageError where it is none or holds a password."""
    if not _is_endpoint(text):
        raise UsageError(
            "not the address of an endpoint",
            where=_NOT_SHOWN.sub("", text.rpartition("@")[2])[:200],
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
