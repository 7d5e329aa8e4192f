"""Two pools as they are asked for, in text and as values."""

import re
from typing import Final

from k31ctl.errors import UsageError
from k31ctl.values import frozen

AUTO: Final = "auto"
MOST_INSTANCES: Final = 10_000
MOST_RANKS: Final = 4096
_SIZE: Final = re.compile(r"(tp|pp|dp|ep|dcp)([0-9]{1,4})")
_COUNT: Final = re.compile(r"[0-9]{1,5}")
_EXAMPLE: Final = "write auto, or pools such as prefill=1xTP8,decode=2xTP8xDCP8"


@frozen
class AskedPool:
    """One pool as it was asked for; None leaves a size, or the number of instances, open."""

    instances: int | None
    tp: int | None
    pp: int | None
    dp: int | None
    ep: int | None
    dcp: int | None


@frozen
class AskedPools:
    """Both pools; None leaves a whole pool open."""

    prefill: AskedPool | None
    decode: AskedPool | None


def asked_pools(text: str) -> AskedPools:
    """Pools of ``auto`` or ``prefill=1xTP8,decode=2xTP8xDCP8``; raises UsageError for others.

    A pool is a number of instances, the sizes of one of them, or both; what is left out is chosen.
    """
    if text.strip().casefold() == AUTO:
        return AskedPools(prefill=None, decode=None)
    found: dict[str, AskedPool] = {}
    for entry in text.split(","):
        role, equals, sizes = entry.strip().casefold().partition("=")
        if role not in ("prefill", "decode") or not equals:
            raise _bad(f"{entry[:40]!r} is no pool")
        if role in found:
            raise _bad(f"{role} is given twice")
        found[role] = _pool(sizes, entry)
    return AskedPools(prefill=found.get("prefill"), decode=found.get("decode"))


def _pool(text: str, entry: str) -> AskedPool:
    instances, sizes = None, dict[str, int]()
    for position, part in enumerate(text.split("x")):
        if position == 0 and _COUNT.fullmatch(part):
            instances = _within(int(part), MOST_INSTANCES, entry)
            continue
        size = _SIZE.fullmatch(part)
        if size is None or size[1] in sizes:
            raise _bad(f"{part[:40]!r} in {entry[:60]!r} is no size")
        sizes[size[1]] = _within(int(size[2]), MOST_RANKS, entry)
    return AskedPool(
        instances=instances,
        tp=sizes.get("tp"),
        pp=sizes.get("pp"),
        dp=sizes.get("dp"),
        ep=sizes.get("ep"),
        dcp=sizes.get("dcp"),
    )


def _within(number: int, most: int, entry: str) -> int:
    if not 1 <= number <= most:
        raise _bad(f"{number} in {entry[:60]!r} is not between 1 and {most}")
    return number


def _bad(what: str) -> UsageError:
    return UsageError(what, where="--disaggregate", remedy=_EXAMPLE)
