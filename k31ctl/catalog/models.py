"""Models: from a profile, from a config.json, or from the folder of a checkpoint."""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.decode import decode
from k31ctl.catalog.json_text import CONFIG_NAME, read_json_config
from k31ctl.catalog.store import Kind, Store, unknown_id
from k31ctl.core.architecture import model_from_config
from k31ctl.core.figure import Assumption, Basis
from k31ctl.core.model import Model, Published
from k31ctl.errors import InputError, ProfileError
from k31ctl.values import frozen

_HUB_NAME_PARTS: Final = 2


@frozen
class _Source:
    url: str
    checked: date


@frozen
class _Assumed:
    id: str
    text: str
    source: str


@frozen
class _Profile:
    """A model profile as it is written; ``config`` is spelled as the release's config.json."""

    id: str
    name: str
    repo: str
    config: Mapping[str, Any]
    source: _Source
    published: Published | None = None
    repository_bytes: int | None = None
    assumptions: tuple[_Assumed, ...] = ()
    notes: str = ""


def load_model(store: Store, spec: str) -> Model:
    """Return the model that a profile's id, its hub name, a config.json or a folder stands for.

    An id goes before a file of the same name; ``./name`` always means the file.
    Raises ProfileError for an unknown id and InputError for a file that is no known model.
    """
    if spec in store.paths(Kind.MODELS):
        return load_model_profile(store, spec)
    if names_file(store, spec):
        return model_at(Path(spec))
    if (profile_id := _id_of_repo(store, spec)) is not None:
        return load_model_profile(store, profile_id)
    if _looks_like_path(spec):
        raise InputError(
            "no such file, folder or known repository",
            where=spec[:200],
            remedy="name a model profile, a config.json or a checkpoint folder; "
            "k31ctl profiles list models shows the profiles",
        )
    raise unknown_id(Kind.MODELS, spec, store.ids(Kind.MODELS))


def load_model_profile(store: Store, profile_id: str) -> Model:
    """Return the model that a profile describes, with the profile's assumptions added."""
    return store.once(Kind.MODELS, profile_id, _model)


def _model(store: Store, profile_id: str) -> Model:
    profile, where = _read(store, profile_id)
    try:
        model = model_from_config(
            profile.config,
            model_id=profile.id,
            name=profile.name,
            where=f"{where}, config",
            published=profile.published,
        )
    except InputError as error:
        raise ProfileError(error.what, where=error.where, remedy=error.remedy) from None
    added = tuple(
        Assumption(id=a.id, text=a.text, basis=Basis.ASSUMED, source=a.source)
        for a in profile.assumptions
    )
    return replace(model, assumptions=model.assumptions + added)


def load_config_profile(store: Store, profile_id: str) -> Mapping[str, Any]:
    """Return the configuration that a model profile holds, spelled as the release's config.json."""
    return _read(store, profile_id)[0].config


def repository(store: Store, spec: str) -> str:
    """Return the hub repository of a profile, or ``spec`` itself where it is OWNER/NAME.

    Raises ProfileError for anything else.
    """
    if spec in store.paths(Kind.MODELS):
        return _read(store, spec)[0].repo
    if len(spec.split("/")) == _HUB_NAME_PARTS and all(spec.split("/")):
        return spec
    raise unknown_id(Kind.MODELS, spec, store.ids(Kind.MODELS))


def repository_bytes(store: Store, profile_id: str) -> int | None:
    """Size of all files of the release, where it is published."""
    return _read(store, profile_id)[0].repository_bytes


def model_at(path: Path) -> Model:
    """Return the model that a config.json, or the one in a folder, describes.

    It is called as its folder, or as its file where that is no config.json.
    """
    config, where = read_json_config(path)
    # Links stay as they are: a hub's cache links config.json to a file named by a hash.
    file = Path(os.path.abspath(where))  # noqa: PTH100
    name = file.parent.name if file.name == CONFIG_NAME else file.stem.removesuffix(".config")
    name = name or str(file.parent)
    return model_from_config(config, model_id=name, name=name, where=where)


def _read(store: Store, profile_id: str) -> tuple[_Profile, str]:
    return store.once(Kind.MODELS, profile_id, _profile)


def _profile(store: Store, profile_id: str) -> tuple[_Profile, str]:
    raw, where = store.load(Kind.MODELS, profile_id)
    return decode(_Profile, raw, where=where), where


def _id_of_repo(store: Store, spec: str) -> str | None:
    """Return the profile whose ``repo`` is ``spec``, in any case of letters."""
    if len(spec.split("/")) != _HUB_NAME_PARTS:
        return None
    for profile_id in store.ids(Kind.MODELS):
        raw, _ = store.load(Kind.MODELS, profile_id)
        if str(raw.get("repo")).casefold() == spec.casefold():
            return profile_id
    return None


def names_file(store: Store, spec: str) -> bool:
    """Whether a model is a file or a folder, which a profile of the same id goes before."""
    return spec not in store.paths(Kind.MODELS) and _exists(spec)


def _exists(spec: str) -> bool:
    try:
        return bool(spec) and Path(spec).exists()
    except PermissionError:
        return True  # and reading it says what is forbidden
    except (OSError, ValueError):
        return False


def _looks_like_path(spec: str) -> bool:
    return os.sep in spec or "/" in spec or spec.endswith(".json")
