"""How fast this machine multiplies matrices: numpy's own product on all cores."""

from collections.abc import Callable
from typing import Any, Final

from k31ctl.core.measured_host import Rate
from k31ctl.host.disk_rate import Unmeasured
from k31ctl.host.memory_rates import rate

_SIZE: Final = 2048
_KINDS: Final = {"fp32": "float32", "fp64": "float64"}


def matmul_rates(*, repeats: int, clock: Callable[[], float]) -> dict[str, Rate]:
    """Operations per second by the type of the operands; raises Unmeasured without numpy."""
    try:
        import numpy  # noqa: PLC0415  no part of the base, and slow to import
    except ImportError:
        raise Unmeasured("numpy is not installed: pip install 'k31ctl[measure]'") from None
    return {
        name: rate(
            [_product(numpy, kind, clock) for _ in range(repeats + 1)][1:],
            f"a {kind} product of {_SIZE} x {_SIZE} matrices with numpy, the median of {repeats}",
        )
        for name, kind in _KINDS.items()
    }


def _product(numpy: Any, kind: str, clock: Callable[[], float]) -> float:
    one = numpy.full((_SIZE, _SIZE), 0.5, dtype=kind)
    two = numpy.full((_SIZE, _SIZE), 0.25, dtype=kind)
    out = numpy.empty((_SIZE, _SIZE), dtype=kind)
    begun = clock()
    numpy.matmul(one, two, out=out)
    return float(2 * _SIZE**3 / max(clock() - begun, 1e-9))
