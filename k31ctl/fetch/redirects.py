"""Where a server sends us instead, and what may go along: one rule for lists and for bytes."""

from typing import Final
from urllib.parse import quote, urljoin

from k31ctl.fetch.trouble import TransferError, broken
from k31ctl.fetch.wire import origin
from k31ctl.shown_address import shown_address

REDIRECTS: Final = (301, 302, 303, 307, 308)
MOST_REDIRECTS: Final = 5
_IN_ADDRESSES: Final = "%/:?#[]@!$&'()*+,;="


def headers_for(url: str, *, endpoint: str, token: str | None) -> dict[str, str]:
    """Return the headers of a request; the token goes to the endpoint's own origin alone."""
    headers = {"User-Agent": "k31ctl", "Accept-Encoding": "identity"}
    if token and origin(url) == origin(endpoint):
        headers["Authorization"] = f"Bearer {token}"
    return headers


def redirected(url: str, target: str | None, *, where: str) -> str:
    """Return where a redirect leads; servers also send addresses with blanks and accents.

    Raises TransferError for a redirect to nowhere.
    """
    if not target:
        raise broken("the server redirects to nowhere", where=where)
    try:
        found = urljoin(url, quote(target.encode("latin-1"), safe=_IN_ADDRESSES))
        if origin(found)[0] in ("http", "https") and origin(found)[1]:
            return found
    except ValueError:
        pass
    raise broken(f"the server redirects to no address: {shown_address(target)[:60]!r}", where=where)


def too_many(where: str) -> TransferError:
    """Return the failure of a server that keeps sending us on."""
    return broken(f"the server redirects more than {MOST_REDIRECTS} times", where=where)
