"""``k31ctl fetch``: a repository's files, here and proven."""

from datetime import UTC, datetime
from pathlib import Path

from k31ctl.cli.fetch_options import (
    AcceptedByOpt,
    BetweenOpt,
    ConnectionsOpt,
    DryRunOpt,
    EndpointOpt,
    EventsOpt,
    ExcludeOpt,
    IncludeOpt,
    LimitRateOpt,
    RepoArg,
    RetriesOpt,
    RevisionOpt,
    StallOpt,
    SyncOpt,
    ToOpt,
    WaitOpt,
)
from k31ctl.cli.fetch_part_options import (
    ExpertsOpt,
    LayersOpt,
    RankOpt,
    RankPpOpt,
    RankTpOpt,
    TensorsOpt,
    asked_part,
)
from k31ctl.cli.options import GateOpt, JsonOpt, ProfilesOpt


def fetch(
    repo: RepoArg,
    to: ToOpt,
    revision: RevisionOpt = "main",
    include: IncludeOpt = None,
    exclude: ExcludeOpt = None,
    endpoint: EndpointOpt = None,
    connections: ConnectionsOpt = 8,
    limit_rate: LimitRateOpt = None,
    between: BetweenOpt = None,
    stall: StallOpt = 20.0,
    retries: RetriesOpt = 8,
    accepted_by: AcceptedByOpt = None,
    layers: LayersOpt = None,
    experts: ExpertsOpt = None,
    tensors: TensorsOpt = None,
    rank: RankOpt = None,
    tp: RankTpOpt = None,
    pp: RankPpOpt = None,
    gate: GateOpt = None,
    profiles: ProfilesOpt = None,
    *,
    dry_run: DryRunOpt = False,
    wait: WaitOpt = True,
    sync: SyncOpt = True,
    events: EventsOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Download a repository or a part of it, go on where it stopped, and prove every byte.

    k31ctl fetch moonshotai/Kimi-K3 --to weights --dry-run

    k31ctl fetch moonshotai/Kimi-K3 --to part --layers 0-3 --experts 0-15
    """
    part = asked_part(
        layers=layers,
        experts=experts,
        tensors=tensors,
        rank=rank,
        tp=tp,
        pp=pp,
        files_are_chosen=bool(include or exclude),
    )
    from k31ctl.catalog import Store, default_folders
    from k31ctl.catalog.models import repository
    from k31ctl.core.gates import parse_gate
    from k31ctl.fetch.hub import DEFAULT_ENDPOINT, Hub
    from k31ctl.fetch.hub_metadata import token_from_environment
    from k31ctl.fetch.job import FetchRequest, look, run
    from k31ctl.fetch.throttle import Throttle
    from k31ctl.report.fetch import show_fetch, show_fetch_plan, show_retry

    gates = [parse_gate(text) for text in gate or ()]
    hub = Hub(
        endpoints=endpoint or (DEFAULT_ENDPOINT,),
        token=token_from_environment(),
        stall_s=stall,
        timeout_s=min(stall, 10.0),
        max_retries=retries,
        on_retry=show_retry,
    )
    named = repository(Store(default_folders(profiles or ())), repo)
    throttle = Throttle(limit_bytes_per_s=limit_rate, hours=between, stopped=hub.stopped)
    if part is not None:
        from k31ctl.fetch.part_plan import PartRequest
        from k31ctl.fetch.partial import fetch_hub_part, look_at_part

        wanted = PartRequest(
            revision=revision,
            folder=Path(to),
            selection=part,
            connections=connections,
            rate_bytes_per_s=limit_rate,
            wait=wait,
            sync=sync,
            accepted_by=accepted_by,
        )
        if dry_run:
            show_fetch_plan(look_at_part(hub, named, wanted), as_json=as_json, gates=gates)
            return
        told = fetch_hub_part(hub, named, wanted, throttle, now=_now)
        show_fetch(told, as_json=as_json, as_events=events, gates=gates)
        return
    request = FetchRequest(
        repo=named,
        revision=revision,
        folder=Path(to),
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        connections=connections,
        rate_bytes_per_s=limit_rate,
        wait=wait,
        sync=sync,
        accepted_by=accepted_by,
    )
    if dry_run:
        show_fetch_plan(look(hub, request), as_json=as_json, gates=gates)
        return
    told = run(hub, request, throttle, now=_now)
    show_fetch(told, as_json=as_json, as_events=events, gates=gates)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
