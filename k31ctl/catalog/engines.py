"""Engine releases and draft models as core types, and which release a name stands for."""

import difflib

from k31ctl.catalog.decode import decode
from k31ctl.catalog.store import Kind, Store, read_text
from k31ctl.core.draft import Draft
from k31ctl.core.engine import Engine
from k31ctl.core.model import Model
from k31ctl.errors import ProfileError, RefusedError, UsageError


def load_engine(store: Store, profile_id: str) -> Engine:
    """Return the engine release that a profile describes."""
    return store.once(Kind.ENGINES, profile_id, _engine)


def _engine(store: Store, profile_id: str) -> Engine:
    raw, where = store.load(Kind.ENGINES, profile_id)
    return decode(Engine, raw, where=where)


def load_draft(store: Store, profile_id: str) -> Draft:
    """Return the draft model that a profile describes."""
    raw, where = store.load(Kind.DRAFTS, profile_id)
    return decode(Draft, raw, where=where)


def resolve_engine(store: Store, spec: str, model: Model) -> Engine:
    """Return the release that ``engine`` or ``engine@version`` names.

    Without a version: the newest release that reads the model, else a development branch that
    does. Raises RefusedError where none does, ProfileError where the name is unknown.
    """
    name, at, version = spec.partition("@")
    if at and not version:
        raise open_version(name)
    ids = _ids_of(store, name, version)
    if not ids:
        raise _unknown(store, spec, name)
    if version:
        return load_engine(store, ids[0])
    # A release whose file does not even name the architecture is not worth decoding.
    hopeful = [i for i in ids if model.architecture in read_text(store.paths(Kind.ENGINES)[i])]
    able = [
        e for e in (load_engine(store, i) for i in hopeful) if model.architecture in e.architectures
    ]
    if not able:
        engines = [load_engine(store, i) for i in ids]
        named = ", ".join(e.name for e in engines)
        raise RefusedError(
            f"no known version of {name} reads {model.architecture}",
            where=f"{model.id}, engine {name} ({named})",
            remedy="choose another --engine; `k31ctl profiles list engines` shows them",
            rule="engine-architecture",
            source=engines[0].source,
        )
    return max(able, key=lambda e: (not e.development, e.rank))


def open_version(name: str) -> UsageError:
    """Return the mistake of an engine with an ``@`` and no version behind it."""
    return UsageError(
        f"'{name[:40]}@' names no version",
        where="--engine",
        remedy=f"write {name[:40]}, or a version after the @",
    )


def _ids_of(store: Store, name: str, version: str) -> list[str]:
    """Profile ids are ``engine-version``; only those of the engine asked for are read."""
    if version:
        return [i for i in store.ids(Kind.ENGINES) if i == f"{name}-{version}"]
    return [i for i in store.ids(Kind.ENGINES) if i.startswith(f"{name}-")]


def _unknown(store: Store, spec: str, name: str) -> ProfileError:
    ids = store.ids(Kind.ENGINES)
    known = [i for i in ids if i.startswith(f"{name}-")] or ids
    near = difflib.get_close_matches(spec.replace("@", "-"), known, n=1, cutoff=0.3)
    hint = f"did you mean {_spec(near[0])}? " if near else ""
    return ProfileError(
        f"no engine is called {spec!r}",
        where="--engine",
        remedy=f"{hint}known are: {', '.join(_spec(i) for i in known)}",
    )


def _spec(profile_id: str) -> str:
    for name in ("tensorrt-llm", "vllm", "sglang", "tokenspeed", "embedded"):
        if profile_id.startswith(f"{name}-"):
            return f"{name}@{profile_id.removeprefix(f'{name}-')}"
    return profile_id
