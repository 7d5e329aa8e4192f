"""To where the files go: a folder, or a prefix in object storage."""

from collections.abc import Callable, Generator

from k31ctl.fetch.events import Event
from k31ctl.fetch.hub import Hub
from k31ctl.fetch.job import FetchRequest, look, run
from k31ctl.fetch.planning import FetchPlan
from k31ctl.fetch.throttle import Throttle


def look_at_target(hub: Hub, request: FetchRequest) -> FetchPlan:
    """Return what would be done; see ``job.look`` and ``upload.look_upload``."""
    if not request.store:
        return look(hub, request)
    from k31ctl.fetch.upload import look_upload  # noqa: PLC0415  only for a store

    return look_upload(hub, request)


def run_to_target(
    hub: Hub, request: FetchRequest, throttle: Throttle, *, now: Callable[[], str]
) -> Generator[Event, None, None]:
    """Fetch, prove and record; see ``job.run`` and ``upload.run_upload``."""
    if not request.store:
        return run(hub, request, throttle, now=now)
    from k31ctl.fetch.upload import run_upload  # noqa: PLC0415  only for a store

    return run_upload(hub, request, throttle, now=now)
