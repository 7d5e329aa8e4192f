"""The parameters of the speed model, from a profile or from a calibration file."""

from dataclasses import replace
from pathlib import Path

from k31ctl.catalog.decode import decode
from k31ctl.catalog.store import Kind, Store, read_text
from k31ctl.catalog.yaml_text import parse_yaml
from k31ctl.core.speed_parameters import SpeedParameters, Table, parameter, tables
from k31ctl.errors import ProfileError

DEFAULT_ID = "kimi"
_TEXT_KEYS = ("id", "name", "checked", "calibration")


def load_speed(store: Store, calibration: Path | None = None) -> SpeedParameters:
    """Return the packaged parameters, with those of a calibration file in place of their own."""
    found = load_speed_profile(store, DEFAULT_ID)
    return calibrated(found, calibration) if calibration else found


def load_speed_profile(store: Store, profile_id: str) -> SpeedParameters:
    """Return the parameters that a profile holds."""
    return store.once(Kind.SPEED, profile_id, _speed)


def _speed(store: Store, profile_id: str) -> SpeedParameters:
    raw, where = store.load(Kind.SPEED, profile_id)
    return _decoded(raw, where)


def calibrated(parameters: SpeedParameters, path: Path) -> SpeedParameters:
    """The parameters with those of a calibration file in place of their own.

    The file is a speed profile that may leave tables and entries out; what it leaves out stays.
    ``calibrate`` writes such files, with the covariance of what it fitted.
    Raises ProfileError naming the file and the first bad key.
    """
    where = str(path)
    if path.exists() and not path.is_file():
        raise ProfileError(
            "not a regular file", where=where, remedy="name a file that k31ctl calibrate wrote"
        )
    raw = parse_yaml(read_text(path), where=where)
    if not isinstance(raw, dict):
        raise ProfileError("not a mapping", where=where, remedy="write tables of parameters")
    own = tables(parameters)
    unknown = [key for key in raw if key not in own and key not in _TEXT_KEYS]
    if unknown:
        raise ProfileError(
            f"unknown key {unknown[0]!r}",
            where=where,
            remedy=f"tables are: {', '.join(own)}",
        )
    if not any(raw.get(key) for key in own):
        raise ProfileError(
            "holds no parameter", where=where, remedy="write at least one table of parameters"
        )
    filled = {**_texts(parameters), **{k: v for k, v in raw.items() if k in _TEXT_KEYS}}
    for name, table in own.items():
        entries = raw.get(name, {})
        if not isinstance(entries, dict):
            raise ProfileError(
                f"{name} is not a mapping",
                where=where,
                remedy="write entries such as default: {value: ...}",
            )
        filled[name] = {"default": _plain(parameter(table)), **entries}
    read = _decoded(filled, where)
    merged: dict[str, Table] = {
        name: {**table, **{k: getattr(read, name)[k] for k in raw.get(name, {})}}
        for name, table in own.items()
    }
    if read.calibration is not None:
        for name, key in read.calibration.parameters:
            if key not in raw.get(name, {}):
                raise ProfileError(
                    f"calibration.parameters names {name}.{key}, which the file does not hold",
                    where=where,
                    remedy="write the file again with k31ctl calibrate",
                )
    return replace(read, **merged)  # type: ignore[arg-type]


def _texts(parameters: SpeedParameters) -> dict[str, object]:
    return {key: getattr(parameters, key) for key in _TEXT_KEYS if key != "calibration"}


def _plain(entry: object) -> dict[str, object]:
    names = ("value", "spread", "prior", "prior_spread", "why", "source", "basis")
    return {name: getattr(entry, name) for name in names} | {
        "basis": str(getattr(entry, "basis", ""))
    }


def _decoded(raw: object, where: str) -> SpeedParameters:
    found = decode(SpeedParameters, raw, where=where)
    for name, table in tables(found).items():
        if "default" not in table:
            raise ProfileError(
                f"{name} has no default", where=where, remedy=f"add {name}: default: ..."
            )
    return found
