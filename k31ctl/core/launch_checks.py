"""What a parser lets pass and the engine refuses or overlooks later: values, fields, variables."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from k31ctl.core.flags import FlagCatalog
from k31ctl.core.launch import Problem, Program, ReadProblem, Setting

_OWN_VARIABLES: Final = {"vllm": "VLLM_", "sglang": "SGLANG_", "tokenspeed": "TOKENSPEED_"}
_FEW: Final = 12


def check_settings(settings: Sequence[Setting], catalog: FlagCatalog) -> tuple[ReadProblem, ...]:
    """Return the values that no list of the release holds, and the fields that no object has."""
    found: list[ReadProblem] = []
    for setting in settings:
        if setting.program is not Program.ENGINE:
            continue
        found += _choices(setting, setting.flag, setting.value, catalog)
        if isinstance(setting.value, dict):
            found += _fields(setting, setting.value, catalog)
    return tuple(found)


def check_environment(
    variables: Mapping[str, str], catalog: FlagCatalog
) -> tuple[ReadProblem, ...]:
    """Return the variables that carry the engine's name and that the release does not read."""
    prefix = _OWN_VARIABLES.get(catalog.engine, "")
    known = (*catalog.environment_variables, *catalog.environment_names_in_source)
    return tuple(
        ReadProblem(
            problem=Problem.UNREAD_VARIABLE,
            subject=name,
            message=f"nothing in {catalog.engine} {catalog.version} reads {name}",
            candidates=tuple(difflib.get_close_matches(name, known, n=2, cutoff=0.85)),
        )
        for name in sorted(variables)
        if prefix and name.startswith(prefix) and not catalog.reads_environment(name)
    )


def _fields(
    setting: Setting, value: Mapping[str, object], catalog: FlagCatalog
) -> list[ReadProblem]:
    known = catalog.config_objects.get(setting.flag)
    found: list[ReadProblem] = []
    for key, inner in value.items():
        name = f"{setting.flag}.{key}"
        if known is not None and key not in known.fields:
            near = difflib.get_close_matches(key, known.fields, n=3, cutoff=0.6)
            found.append(
                ReadProblem(
                    problem=Problem.UNKNOWN_FIELD,
                    subject=name,
                    message=f"{setting.flag} has no field {key!r}",
                    positions=setting.positions,
                    candidates=tuple(near),
                )
            )
        found += _choices(setting, name, inner, catalog)
    return found


def _choices(setting: Setting, name: str, value: object, catalog: FlagCatalog) -> list[ReadProblem]:
    """Compare a value with the list that the engine checks it against after parsing.

    Names of back ends are taken in either case, so they are compared without it.
    """
    choices = catalog.runtime_choices.get(name)
    if choices is None or not isinstance(value, str) or not value:
        return []
    folded = {choice.casefold(): choice for choice in choices}
    if value.casefold() in folded:
        return []
    near = [folded[n] for n in difflib.get_close_matches(value.casefold(), folded, n=3)]
    return [
        ReadProblem(
            problem=Problem.BAD_RUNTIME_CHOICE,
            subject=name,
            message=f"{name} does not take {value[:60]!r}",
            positions=setting.positions,
            candidates=tuple(near or choices[:_FEW]),
        )
    ]
