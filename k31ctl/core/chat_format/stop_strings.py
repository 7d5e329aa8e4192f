"""Stop strings in text that arrives in pieces."""

from collections.abc import Sequence


class StopStrings:
    """Text up to the first stop string, held back only as far as one may be starting.

    The first is the one that ends first, and of those the longest, so that pieces do not matter.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self._longest = max((len(stop) for stop in stops), default=0)
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """Return the text that is certain by now."""
        if self.matched is not None:
            return ""
        self._held += text
        found = [(at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            at, self.matched = min(found, key=lambda pair: (pair[0] + len(pair[1]), pair[0]))
            certain, self._held = self._held[:at], ""
            return certain
        keep = self._num_kept()
        certain = self._held[: len(self._held) - keep]
        self._held = self._held[len(self._held) - keep :]
        return certain

    def finish(self) -> str:
        """Return what was held back and did not become a stop string."""
        left, self._held = self._held, ""
        return left

    def _num_kept(self) -> int:
        """Length of the longest end of the text with which a stop string begins."""
        most = min(self._longest - 1, len(self._held))
        for length in range(most, 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
