"""``k31ctl fetch``: a repository's files, here and proven."""

from pathlib import Path
from typing import Annotated

import typer

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
)
from k31ctl.cli.fetch_peer_options import (
    ClientsOpt,
    FromPeerOpt,
    HostOpt,
    OfflineOpt,
    PortOpt,
    ServeOpt,
)
from k31ctl.cli.fetch_serve import require_served_options, serve_folder
from k31ctl.cli.options import JsonOpt, ProfilesOpt, gate_option
from k31ctl.errors import UsageError
from k31ctl.fetch.serve_defaults import DEFAULT_HOST, DEFAULT_PORT, MOST_CONNECTIONS


def fetch(
    context: typer.Context,
    to: ToOpt,
    repo: RepoArg = None,
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
    gate: Annotated[list[str] | None, gate_option("verified==true")] = None,
    from_peer: FromPeerOpt = None,
    host: HostOpt = DEFAULT_HOST,
    port: PortOpt = DEFAULT_PORT,
    clients: ClientsOpt = MOST_CONNECTIONS,
    profiles: ProfilesOpt = None,
    *,
    dry_run: DryRunOpt = False,
    offline: OfflineOpt = False,
    serve: ServeOpt = False,
    wait: WaitOpt = True,
    sync: SyncOpt = True,
    events: EventsOpt = False,
    as_json: JsonOpt = False,
) -> None:
    """Download a repository or a part of it, go on where it stopped, and prove every byte.

    k31ctl fetch moonshotai/Kimi-K3 --to weights --dry-run

    k31ctl fetch moonshotai/Kimi-K3 --to part --layers 0-3 --experts 0-15
    """
    require_served_options(context, serve=serve)
    if serve and repo is not None:
        raise UsageError(
            "what is served is what the folder holds; a repository cannot be named",
            where=f"--serve with {repo[:80]}",
            remedy="write k31ctl fetch --serve --to DIR",
        )
    if serve:
        serve_folder(
            Path(to),
            host=host,
            port=port,
            most_connections=clients,
            rate_bytes_per_s=limit_rate,
            as_events=events,
        )
        return
    if repo is None:
        raise UsageError(
            "no repository is named",
            where="MODEL_OR_REPO",
            remedy="write k31ctl fetch OWNER/NAME --to DIR, or --serve to give a folder to others",
        )
    if as_json and events:
        raise UsageError(
            "one document and a line for each event cannot both go to standard output",
            where="--json with --events",
            remedy="leave one of them out",
        )
    from k31ctl.api.fetching import fetch_job
    from k31ctl.core.gates import parse_gate
    from k31ctl.report.fetch import show_fetch, show_fetch_plan, show_retry

    gates = [parse_gate(text) for text in gate or ()]
    job = fetch_job(
        repo,
        to,
        on_retry=show_retry,
        revision=revision,
        include=include or (),
        exclude=exclude or (),
        endpoint=endpoint or (),
        connections=connections,
        limit_rate=limit_rate,
        between=between,
        stall=stall,
        retries=retries,
        accepted_by=accepted_by,
        layers=layers,
        experts=experts,
        tensors=tensors or (),
        rank=rank,
        tp=tp,
        pp=pp,
        from_peer=from_peer or (),
        offline=offline,
        wait=wait,
        sync=sync,
        profiles=profiles or (),
    )
    if dry_run:
        show_fetch_plan(job.look(), as_json=as_json, gates=gates)
        return
    show_fetch(job.events(), as_json=as_json, as_events=events, gates=gates)
