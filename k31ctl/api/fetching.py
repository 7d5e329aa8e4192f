"""Downloads: what would be done, and doing it."""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from k31ctl.api.given import (
    Folders,
    checked_positive,
    checked_range,
    store_of,
    texts_of,
)
from k31ctl.catalog.models import repository
from k31ctl.errors import UsageError
from k31ctl.fetch.events import Event, Finished, Planned
from k31ctl.fetch.hub import DEFAULT_ENDPOINT, Hub
from k31ctl.fetch.hub_metadata import token_from_environment
from k31ctl.fetch.job import FetchRequest
from k31ctl.fetch.object_store import is_store_url
from k31ctl.fetch.part_plan import PartRequest
from k31ctl.fetch.peer_choice import Network, hub_for
from k31ctl.fetch.target import look_at_target, run_to_target
from k31ctl.fetch.throttle import Hours, Throttle, parse_hours
from k31ctl.values import frozen

if TYPE_CHECKING:
    from k31ctl.fetch.part_plan import PartPlan
    from k31ctl.fetch.planning import FetchPlan
    from k31ctl.fetch.selection import Selection

OnRetry = Callable[[str, str, float], None]


@frozen
class FetchJob:
    """A download that is asked for: to be looked at or to be done, which ends its connections."""

    hub: Hub
    repo: str
    request: FetchRequest | PartRequest
    throttle: Throttle

    def look(self) -> "FetchPlan | PartPlan":
        """Return what would be done; writes nothing, and asks the hub."""
        try:
            if isinstance(self.request, FetchRequest):
                return look_at_target(self.hub, self.request)
            from k31ctl.fetch.partial import look_at_part

            return look_at_part(self.hub, self.repo, self.request)
        finally:
            self.hub.stop()

    def events(self) -> Generator[Event, None, None]:
        """Do it; the last event is ``Finished``, and closing the generator stops the work."""
        try:
            yield from self._events()
        finally:
            self.hub.stop()

    def _events(self) -> Generator[Event, None, None]:
        if isinstance(self.request, FetchRequest):
            return run_to_target(self.hub, self.request, self.throttle, now=_now)
        from k31ctl.fetch.partial import fetch_hub_part

        return fetch_hub_part(self.hub, self.repo, self.request, self.throttle, now=_now)


class FetchOptions(TypedDict, total=False):
    """The options of ``k31ctl fetch``, under the same names.

    ``limit_rate`` is in bytes per second, ``stall`` in seconds, ``between`` a span of hours such as
    ``22:00-06:00``. ``layers``, ``experts``, ``tensors`` and ``rank`` choose a part. One text
    stands for a list of it.
    """

    revision: str
    include: str | Sequence[str]
    exclude: str | Sequence[str]
    endpoint: str | Sequence[str]
    connections: int
    limit_rate: float | None
    between: str | None
    stall: float
    retries: int
    accepted_by: str | None
    layers: str | None
    experts: str | None
    tensors: str | Sequence[str]
    rank: int | None
    tp: int | None
    pp: int | None
    from_peer: str | Sequence[str]
    offline: bool
    wait: bool
    sync: bool
    profiles: Folders


@frozen
class Downloaded:
    """What was to be done, and what came of it."""

    plan: "FetchPlan | PartPlan"
    finished: Finished


def download(
    model_or_repo: str,
    to: str | Path,
    *,
    on_event: Callable[[Event], None] | None = None,
    on_retry: OnRetry | None = None,
    **options: Unpack[FetchOptions],
) -> Downloaded:
    """Fetch a repository or a part of it into a folder, going on where it stopped; proven.

    ``on_event`` is told every event as it comes, ``on_retry`` what is asked for again, why, and
    after how many seconds. Raises NotProvenError for bytes that are not what was published,
    EndpointError where no hub or mirror gives them, RefusedError where there is no room, and
    InputError for a target that cannot be written. The hub's token is read from the environment,
    as are ``HF_ENDPOINT`` and the proxies.

    >>> download("moonshotai/Kimi-K3", "part", layers="0-3", on_event=print)
    """
    plan: FetchPlan | PartPlan | None = None
    finished: Finished | None = None
    job = fetch_job(model_or_repo, to, on_retry=on_retry, **options)
    with closing(job.events()) as events:
        for event in events:
            match event:
                case Planned():
                    plan = event.plan
                case Finished():
                    finished = event
            if on_event is not None:
                on_event(event)
    assert plan is not None
    assert finished is not None
    if finished.failure is not None:
        raise finished.failure
    return Downloaded(plan=plan, finished=finished)


def download_plan(
    model_or_repo: str, to: str | Path, **options: Unpack[FetchOptions]
) -> "FetchPlan | PartPlan":
    """Return what ``download`` would do: files, bytes, what is here already, room, time.

    Writes nothing. That there is no room is in the plan. Raises what ``download`` raises before
    its first byte.

    >>> print(download_plan("moonshotai/Kimi-K3", "weights").bytes_to_get)
    """
    return fetch_job(model_or_repo, to, on_retry=None, **options).look()


def fetch_job(
    model_or_repo: str,
    to: str | Path,
    *,
    on_retry: OnRetry | None,
    revision: str = "main",
    include: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    endpoint: str | Sequence[str] = (),
    connections: int = 8,
    limit_rate: float | None = None,
    between: str | None = None,
    stall: float = 20.0,
    retries: int = 8,
    accepted_by: str | None = None,
    layers: str | None = None,
    experts: str | None = None,
    tensors: str | Sequence[str] = (),
    rank: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    from_peer: str | Sequence[str] = (),
    offline: bool = False,
    wait: bool = True,
    sync: bool = True,
    profiles: Folders = (),
) -> FetchJob:
    """Return a download ready to look or to begin; raises UsageError for options that exclude."""
    checked_range("--connections", connections, least=1, most=64)
    checked_range("--retries", retries, least=0)
    checked_range("--stall", stall, least=0.1)
    checked_range("--rank", rank, least=0)
    checked_range("--tp", tp, least=1)
    checked_range("--pp", pp, least=1)
    checked_positive("--limit-rate", limit_rate)
    part = asked_part(
        layers=layers,
        experts=experts,
        tensors=texts_of(tensors),
        rank=rank,
        tp=tp,
        pp=pp,
        files_are_chosen=bool(include or exclude),
    )
    target, peers = str(to), texts_of(from_peer)
    hub = hub_for(
        Network(
            endpoints=texts_of(endpoint) or _endpoints(),
            token=token_from_environment(),
            stall_s=stall,
            max_retries=retries,
            on_retry=on_retry,
        ),
        peers=peers,
        is_offline=offline,
        folder=Path(target),
    )
    repo = repository(store_of(profiles), model_or_repo)
    throttle = Throttle(
        limit_bytes_per_s=limit_rate,
        hours=None if between is None else _hours(between),
        stopped=hub.stopped,
    )
    request: FetchRequest | PartRequest
    if part is not None:
        _require_hub_and_folder(peers, target)
        request = PartRequest(
            revision=revision,
            folder=Path(target),
            selection=part,
            connections=connections,
            rate_bytes_per_s=limit_rate,
            wait=wait,
            sync=sync,
            accepted_by=accepted_by,
        )
    else:
        request = FetchRequest(
            repo=repo,
            revision=revision,
            folder=Path(target),
            include=texts_of(include),
            exclude=texts_of(exclude),
            connections=connections,
            rate_bytes_per_s=limit_rate,
            wait=wait,
            sync=sync,
            accepted_by=accepted_by,
            store=target if is_store_url(target) else "",
        )
    return FetchJob(hub=hub, repo=repo, request=request, throttle=throttle)


def asked_part(
    *,
    layers: str | None,
    experts: str | None,
    tensors: Sequence[str],
    rank: int | None,
    tp: int | None,
    pp: int | None,
    files_are_chosen: bool,
) -> "Selection | None":
    """The part that the options ask for, None for the whole; raises UsageError."""
    if rank is None and (tp is not None or pp is not None):
        raise UsageError(
            "a layout without a rank chooses nothing",
            where="--tp, --pp",
            remedy="say which rank's share is wanted with --rank",
        )
    if layers is None and experts is None and not tensors and rank is None:
        return None
    if files_are_chosen:
        raise UsageError(
            "files and tensors cannot both be chosen",
            where="--include, --exclude",
            remedy="leave them out, or fetch whole files without --layers, --experts, --tensors "
            "and --rank",
        )
    from k31ctl.fetch.selection import Selection, numbers, rank_of

    told = [("--layers", layers), ("--experts", experts)]
    told += [("--tensors", glob) for glob in tensors]
    told += [("--rank", rank), ("--tp", tp), ("--pp", pp)]  # type: ignore[list-item]
    return Selection(
        layers=None if layers is None else numbers(layers, "--layers"),
        experts=None if experts is None else numbers(experts, "--experts"),
        globs=tuple(tensors),
        rank=None if rank is None else rank_of(rank, tp=tp or 1, pp=pp or 1),
        text=" ".join(f"{name} {value}" for name, value in told if value is not None),
    )


def _require_hub_and_folder(peers: Sequence[str], target: str) -> None:
    """Raise UsageError where a part shall come from a peer or go into object storage."""
    if not peers and "://" not in target:
        return
    raise UsageError(
        "a part is fetched from a hub, into a folder",
        where=f"--from-peer {peers[0]}" if peers else f"--to {target[:120]}",
        remedy="name a mirror with --endpoint (a node that serves its folder is one), and a folder",
    )


def _hours(text: str) -> Hours:
    try:
        return parse_hours(text)
    except ValueError as error:
        what, _, remedy = str(error).partition("; ")
        raise UsageError(what, where="--between", remedy=remedy) from None


def _endpoints() -> tuple[str, ...]:
    return tuple(os.environ.get("HF_ENDPOINT", "").split()) or (DEFAULT_ENDPOINT,)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
