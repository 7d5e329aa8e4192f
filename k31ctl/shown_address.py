"""An address as it may be shown: without what may be a secret."""

import re
from typing import Final

_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)  # it may hold a signature or a key
_MOST: Final = 200


def shown_address(text: str) -> str:
    """Return an address, or what was meant as one, without login, query and fragment."""
    scheme, slashes, rest = _QUERY.sub("", text).rpartition("://")
    return (scheme + slashes + rest.rpartition("@")[2])[:_MOST]
