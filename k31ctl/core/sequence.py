"""A request under way, and the longest of the gaps between its tokens."""

from bisect import bisect_right
from dataclasses import dataclass

from k31ctl.core.arrivals import RequestSize


@dataclass(slots=True, eq=False)
class Sequence:
    """A request under way."""

    order: int
    size: RequestSize
    arrival_s: float
    user: int
    generated: int = 0
    prefilled: int = 0
    admitted_units: int = 0
    joined_step: int = 0
    end_step: int = 0
    first_token_s: float = -1.0
    last_token_s: float = -1.0
    max_gap_s: float = 0.0
    gaps_seen: int = 0
    preemptions: int = 0

    @property
    def prefill_target(self) -> int:
        """Tokens in the cache when prefill is done; what a preempted one had made included."""
        return self.size.prompt_tokens + self.generated

    @property
    def total_tokens(self) -> int:
        """Length at its end."""
        return self.size.prompt_tokens + self.size.output_tokens


class Gaps:
    """Gaps between the tokens of a batch, and the longest since any of them, in log time.

    Kept is every gap that no later one reaches: they fall in order, so the first after a given
    moment is the longest since then.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._positions: list[int] = []
        self._gaps_s: list[float] = []

    def add(self, gap_s: float) -> None:
        """Append one gap."""
        self.seen += 1
        while self._gaps_s and self._gaps_s[-1] <= gap_s:
            self._gaps_s.pop()
            self._positions.pop()
        self._gaps_s.append(gap_s)
        self._positions.append(self.seen)

    def longest_since(self, seen: int) -> float:
        """Return the longest gap after the first ``seen`` ones, 0 where there is none."""
        at = bisect_right(self._positions, seen)
        return self._gaps_s[at] if at < len(self._gaps_s) else 0.0
