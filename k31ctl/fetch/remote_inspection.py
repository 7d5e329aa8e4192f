"""Headers of a repository on a hub, held against what its configuration implies."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from k31ctl.catalog.models import load_model, model_at
from k31ctl.catalog.store import Store
from k31ctl.errors import K31Error, UsageError
from k31ctl.fetch.hub import DEFAULT_ENDPOINT, Hub
from k31ctl.fetch.hub_metadata import token_from_environment
from k31ctl.fetch.inspection import HUB_MARK, Inspection, inspect_headers, no_collection
from k31ctl.fetch.source import HubSource, copy_small_files, source_headers

_SPEC: Final = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@(?P<revision>\S+))?")


@contextmanager
def hub_source(spec: str, endpoints: Sequence[str]) -> Iterator[HubSource]:
    """The repository that ``hub:OWNER/REPO[@REVISION]`` names, at the commit of the revision;
    its connections are closed behind the block.

    Raises UsageError for another spelling, and what ``Hub.snapshot`` raises.
    """
    found = _SPEC.fullmatch(spec.removeprefix(HUB_MARK))
    if found is None:
        raise UsageError(
            "this names no repository",
            where=spec[:120],
            remedy="write hub:OWNER/REPO or hub:OWNER/REPO@REVISION",
        )
    hub = Hub(endpoints=endpoints or (DEFAULT_ENDPOINT,), token=token_from_environment())
    try:
        yield HubSource(hub, hub.snapshot(found["repo"], found["revision"] or "main"))
    finally:
        hub.stop()


def inspect_hub(
    store: Store, spec: str, *, model_spec: str | None, endpoints: Sequence[str]
) -> Inspection:
    """Inspect a repository by range requests: its configuration, its index and every header."""
    with (
        hub_source(spec, endpoints) as source,
        TemporaryDirectory(prefix="k31ctl-") as temporary,
    ):
        # The model is named for its folder, and so for the repository.
        folder = Path(temporary) / source.label.rpartition("/")[2]
        folder.mkdir()
        place = f"{source.label}@{source.commit[:12]}"
        try:
            found = copy_small_files(source, folder)
            model = model_at(folder) if model_spec is None else load_model(store, model_spec)
        except K31Error as failure:  # it is the repository's file, not the copy, that is wrong
            failure.where = failure.where.replace(str(folder), place)
            raise
        with no_collection():
            return inspect_headers(place, found, model, source_headers(source, found))
