"""How often one piece of work may fail, and how long to wait each time."""

import random
import threading
from collections.abc import Callable
from typing import Final

from k31ctl.fetch.trouble import StoppedError, TransferError

_MOST_WAIT_S: Final = 300.0


class Patience:
    """Counts the failures of one piece of work and waits between them.

    With several endpoints each may fail as often as one alone: an outage of all of them is waited
    out as long.
    """

    def __init__(
        self,
        what: str,
        *,
        max_retries: int,
        backoff_s: float,
        num_endpoints: int,
        stopped: threading.Event,
        on_retry: Callable[[str, str, float], None] | None,
    ) -> None:
        self._what, self._max_retries, self._backoff_s = what, max_retries, backoff_s
        self._num_endpoints, self._stopped, self._on_retry = num_endpoints, stopped, on_retry
        self.num_failures = 0
        self._in_a_row = 0

    def progressed(self) -> None:
        """Count failures anew: bytes have arrived."""
        self._in_a_row = 0

    def failed(self, error: TransferError) -> None:
        """Wait until the next attempt; raises the final failure where there is none."""
        self.num_failures += 1
        self._in_a_row += 1
        tried_all = self._in_a_row >= self._num_endpoints
        too_often = self._in_a_row >= (self._max_retries + 1) * self._num_endpoints
        if too_often or (not error.again and tried_all):
            raise error.final from None
        wait_s = self._wait_s(error)
        if self._on_retry is not None:
            self._on_retry(self._what, error.reason, wait_s)
        if self._stopped.wait(wait_s):
            raise StoppedError

    def _wait_s(self, error: TransferError) -> float:
        if not error.again:
            return 0.0
        rounds = (self._in_a_row - 1) // self._num_endpoints
        wait_s = self._backoff_s * 2.0 ** min(rounds, 6) * random.uniform(0.5, 1.0)
        return min(max(wait_s, error.after_s or 0.0), _MOST_WAIT_S)
