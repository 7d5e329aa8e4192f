"""Checkpoints: what their headers hold, whether they are proven, under which terms; a tiny one."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from k31ctl.api.given import Folders, checked_range, path_of, store_of

if TYPE_CHECKING:
    from k31ctl.fetch.inspection import Inspection
    from k31ctl.fetch.licence_check import Terms
    from k31ctl.fetch.verify import Verification
    from k31ctl.fetch.watch import Watch
    from k31ctl.tiny.checkpoint import TinyCheckpoint


def inspect(
    checkpoint: str | Path,
    *,
    model: str | None = None,
    endpoint: Sequence[str] = (),
    profiles: Folders = (),
) -> "Inspection":
    """Return what the headers of a checkpoint hold against what its configuration implies.

    ``checkpoint`` is a folder, or ``hub:OWNER/REPO[@REVISION]``, whose headers are read by range
    requests; ``model`` a profile or a config.json, instead of the folder's own. Differences are in
    the answer; ``require_proven`` raises NotProvenError for them. Raises InputError where there is
    nothing to read, ProfileError for an unknown model, EndpointError where no hub answers.

    >>> inspect("weights").require_proven()
    """
    from k31ctl.fetch.inspection import HUB_MARK, inspect_checkpoint

    store, spec = store_of(profiles), str(checkpoint)
    if spec.startswith(HUB_MARK):
        from k31ctl.fetch.remote_inspection import inspect_hub

        return inspect_hub(store, spec, model_spec=model, endpoints=endpoint)
    return inspect_checkpoint(store, spec, model_spec=model)


def verify(
    folder: str | Path,
    *,
    manifest: str | Path | None = None,
    model: str | None = None,
    jobs: int = 0,
    sizes: bool = False,
    deep: bool = False,
    again: bool = False,
    repair: bool = False,
    endpoint: Sequence[str] = (),
    connections: int = 8,
    retries: int = 8,
    watch: "Watch | None" = None,
    profiles: Folders = (),
) -> "Verification":
    """Return what proves a checkpoint on disk, offline: sizes, digests, structure; values if deep.

    With ``repair`` what is damaged is fetched again from where the record says. ``jobs`` files are
    read at once, 0 is one per processor; ``watch`` is told how far it is. Damage is in the answer;
    ``require_proven`` raises NotProvenError for it. Raises InputError where there is nothing to
    verify, UsageError for ``sizes`` with ``deep``.

    >>> verify("weights", deep=True).require_proven()
    """
    from k31ctl.fetch.findings import deepest_of
    from k31ctl.fetch.verify import Wanted, repair_checkpoint, verify_checkpoint
    from k31ctl.fetch.watch import Watch

    checked_range("--jobs", jobs, least=0, most=256)
    checked_range("--connections", connections, least=1, most=64)
    checked_range("--retries", retries, least=0)
    wanted = Wanted(
        deepest=deepest_of(sizes=sizes, deep=deep),
        manifest=path_of(manifest),
        model_spec=model,
        num_jobs=jobs,
        again=again,
    )
    store, root = store_of(profiles), Path(folder)
    if not repair:
        return verify_checkpoint(store, root, wanted, watch=watch)
    return repair_checkpoint(
        store,
        root,
        wanted,
        endpoints=endpoint,
        connections=connections,
        max_retries=retries,
        watch=watch or Watch(),
    )


def licence(subject: str | Path, *, model: str | None = None, profiles: Folders = ()) -> "Terms":
    """Return what is known of the terms of a model, with sources, and what is not.

    ``subject`` is a profile of a model or a draft, ``OWNER/NAME``, or a folder of weights, which
    ``model`` names where it has no record. Raises ProfileError for an unknown name.

    >>> print(licence("kimi-k3").licence.name)
    """
    from k31ctl.fetch.licence_check import terms_of

    return terms_of(store_of(profiles), str(subject), model=model)


def write_tiny(
    folder: str | Path, *, model: str = "kimi-k3.1-pro", seed: int = 0, profiles: Folders = ()
) -> "TinyCheckpoint":
    """Write a random checkpoint of the real architecture in a few megabytes, with a tokenizer.

    The same seed gives the same bytes. Raises UsageError for a model that has no tiny one, and
    InputError for a folder that is not empty or cannot be written.

    >>> print(write_tiny("tiny-k3", model="kimi-k3").made.num_experts)
    """
    from k31ctl.tiny.checkpoint import write_tiny as written

    checked_range("--seed", seed, least=0)
    return written(store_of(profiles), Path(folder), model=model, seed=seed)
