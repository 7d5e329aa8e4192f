"""A download in this process, for what does not need a process of its own: quicker to begin."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from k31ctl.fetch.events import Event, FileStarted, Finished
from k31ctl.fetch.hub import Hub
from k31ctl.fetch.job import FetchRequest, run
from k31ctl.fetch.throttle import Throttle
from tests.fetch.hub_server import HubServer

E = TypeVar("E", bound=Event)


def unlimited(stopped: threading.Event) -> Throttle:
    return Throttle(limit_bytes_per_s=None, hours=None, stopped=stopped)


class Download:
    """One run of a download: its events so far, and what came of it."""

    def __init__(
        self,
        hub: HubServer,
        folder: Path,
        *,
        endpoints: Sequence[str] = (),
        connections: int = 4,
        stall_s: float = 10.0,
        retries: int = 2,
        token: str | None = None,
        throttle: Callable[[threading.Event], Throttle] = unlimited,
        wait: bool = True,
        sync: bool = True,
    ) -> None:
        self.hub = Hub(
            endpoints=endpoints or (hub.url,),
            token=token,
            stall_s=stall_s,
            max_retries=retries,
            backoff_s=0.02,
        )
        request = FetchRequest(
            repo=hub.repo,
            revision="main",
            folder=folder,
            include=(),
            exclude=(),
            connections=connections,
            rate_bytes_per_s=None,
            wait=wait,
            sync=sync,
            accepted_by=None,
        )
        self.steps = run(
            self.hub, request, throttle(self.hub.stopped), now=lambda: datetime.now(UTC).isoformat()
        )
        self.events: list[Event] = []

    def until(self, kind: type[Event]) -> None:
        """Go on until an event of this kind has come."""
        for event in self.steps:
            self.events.append(event)
            if isinstance(event, kind):
                return
        raise AssertionError(f"it ended without {kind.__name__}")

    def finish(self) -> Finished:
        """Go on to the end; raises the failure where there is one."""
        self.events.extend(self.steps)
        last = self.events[-1]
        assert isinstance(last, Finished)
        if last.failure is not None:
            raise last.failure
        return last

    def finish_checks(self) -> list[str]:
        """Go on to the end; returns the files of the folder that were read again."""
        self.finish()
        return [event.path for event in self.of(FileStarted) if event.is_check]

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def fetch_in_a_child(url: str, repo: str, folder: str) -> None:
    """What a process does that is killed."""
    Download(HubServer(files={}, repo=repo, url=url), Path(folder), retries=1).finish()
