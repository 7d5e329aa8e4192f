"""Two pools as they are asked for."""

from k31ctl.values import frozen


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
