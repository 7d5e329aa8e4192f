"""Run by an engine's own interpreter: its parser, choices and variables, written as one JSON file.

Takes the engine's name and the path to write; what is of one engine alone is in the script of its
name. Both need nothing but the standard library and the engine; what an engine does not have is
left out, never guessed. Help texts are not recorded.
"""

import argparse
import contextlib
import dataclasses
import enum
import importlib
import importlib.metadata
import json
import re
import sys
import types
import typing
from pathlib import Path
from typing import Any

HOME = str(Path.home())
_DEEPEST = 6
_ACTIONS = (
    (argparse.BooleanOptionalAction, "bool_optional"),
    (argparse._StoreTrueAction, "store_true"),
    (argparse._StoreFalseAction, "store_false"),
    (argparse._StoreConstAction, "store_const"),
    (argparse._AppendAction, "append"),
    (argparse._CountAction, "count"),
    (argparse._HelpAction, "help"),
    (argparse._VersionAction, "version"),
    (argparse._StoreAction, "store"),
)
_TARGETS = ("return_type", "cls", "elem_type", "dtype")


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON can hold it, the same in every run and for every user."""
    if isinstance(value, str):
        return "~" + value.removeprefix(HOME) if value.startswith(f"{HOME}/") else value
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str | int) else value.name
    if isinstance(value, type):
        return value.__name__
    return plain_parts(value, depth) if depth <= _DEEPEST else shown(value)


def plain_parts(value: Any, depth: int) -> Any:
    """Return a value that holds others."""
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value) if not f.name.startswith("_")]
        return {name: plain(getattr(value, name, None), depth + 1) for name in names}
    if isinstance(value, dict):
        return {str(key): plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, depth + 1) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(str(plain(inner, depth + 1)) for inner in value)
    return shown(value)


def shown(value: Any) -> str:
    """Return a representation without addresses in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def type_of(kind: Any) -> str:
    """Return the name of an argparse type; of a made one also what it was made for."""
    if kind is None:
        return "str"
    tried = (kind, getattr(kind, "func", None), getattr(kind, "__wrapped__", None))
    names = [getattr(each, "__name__", "") for each in tried]
    name = next((each for each in names if each), type(kind).__name__)
    code, cells = getattr(kind, "__code__", None), getattr(kind, "__closure__", None) or ()
    held = {}
    for variable, cell in zip(code.co_freevars if code else (), cells, strict=False):
        with contextlib.suppress(ValueError):
            held[variable] = cell.cell_contents
    target = next((held[key] for key in _TARGETS if held.get(key) is not None), None)
    return name if target is None else f"{name}[{getattr(target, '__name__', str(target))}]"


def action_of(action: argparse.Action) -> str:
    """Return the name of an action; of a kind of a known one, both names."""
    for kind, name in _ACTIONS:
        if type(action) is kind:
            return name
    for kind, name in _ACTIONS:
        if isinstance(action, kind):
            return f"{name}:{type(action).__name__}"
    return type(action).__name__


def flag_of(action: argparse.Action, group: str | None, hidden_names: list[str]) -> dict[str, Any]:
    """Return one argument, without what has its usual value."""
    kind = action_of(action)
    truth = kind.split(":")[0] in ("store_true", "store_false", "bool_optional")
    told = str(action.help or "")[:60]
    choices = action.choices
    found = {
        "names": list(action.option_strings),
        "dest": action.dest,
        "action": "" if kind == "store" else kind,
        "type": "bool" if truth else type_of(action.type),
        "nargs": action.nargs,
        "choices": None if choices is None else sorted((plain(c) for c in choices), key=str),
        "default": plain(action.default),
        "const": plain(action.const),
        "required": bool(action.required),
        "deprecated": bool(
            getattr(action, "deprecated", False)
            or re.search("deprecat", told, re.IGNORECASE)
            or "Deprecated" in type(action).__name__
        ),
        "hidden": action.help is argparse.SUPPRESS,
        "group": group,
        "hidden_names": hidden_names,
    }
    usual = {"type": "str", "required": False, "deprecated": False, "hidden": False}
    usual |= {"names": [], "action": "", "group": "", "hidden_names": []}
    return {k: v for k, v in found.items() if v is not None and (k not in usual or usual[k] != v)}


def flags_of(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    """Return every argument of a parser but its help, sorted by its first spelling."""
    extra: dict[int, list[str]] = {}
    for spelling, action in parser._option_string_actions.items():
        if spelling not in action.option_strings:
            extra.setdefault(id(action), []).append(spelling)
    titled = [(a, g.title) for g in parser._action_groups for a in g._group_actions]
    titled += [(action, None) for action in parser._actions]
    rows: dict[int, dict[str, Any]] = {}
    for action, title in titled:
        if id(action) not in rows and not isinstance(action, argparse._HelpAction):
            rows[id(action)] = flag_of(action, title, sorted(extra.get(id(action), [])))
    return sorted(rows.values(), key=lambda r: r.get("names", [r["dest"]])[0].lstrip("-"))


def annotation(kind: Any) -> str:
    """Return a type annotation as a person would write it."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, str):
        return kind
    if origin is typing.Literal:
        return f"Literal[{', '.join(repr(each) for each in inner)}]"
    if origin in (typing.Union, types.UnionType):
        return " | ".join(annotation(each) for each in inner)
    if origin is typing.Annotated:
        return annotation(inner[0])
    if origin is not None:
        listed = ", ".join(annotation(each) for each in inner)
        return f"{getattr(origin, '__name__', origin)}[{listed}]"
    return getattr(kind, "__name__", None) or str(kind).replace("typing.", "")


def fields_of(kind: Any) -> dict[str, Any]:
    """Return the fields of a dataclass with type and default, also of pydantic's."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001  names that only a type checker imports
        hints = {}
    found = {}
    for field in dataclasses.fields(kind):
        if field.name.startswith("_") or not field.init:
            continue
        default = plain(default_of(field))
        found[field.name] = {"type": annotation(hints.get(field.name, field.type))}
        if default is not None:
            found[field.name]["default"] = default
    return found


def default_of(field: Any) -> Any:
    """Return the default of a dataclass field, made by its factory where it has one."""
    default, factory = field.default, field.default_factory
    if type(default).__name__ == "FieldInfo":
        default, factory = default.default, default.default_factory or dataclasses.MISSING
    if factory is not dataclasses.MISSING:
        try:
            return factory()
        except Exception:  # noqa: BLE001  a factory may need a GPU
            return None
    missing = default is dataclasses.MISSING or "Undefined" in type(default).__name__
    return None if missing else default


def quoted_names(package: Any, prefixes: str) -> list[str]:
    """Return every name with one of the prefixes that stands in quotes in a package's source."""
    pattern = re.compile(rf"[\"']((?:{prefixes})[A-Z0-9_]+)[\"']")
    names: set[str] = set()
    for path in Path(package.__file__).resolve().parent.rglob("*.py"):
        with contextlib.suppress(OSError):
            names.update(pattern.findall(path.read_text(errors="ignore")))
    return sorted(names)


def maybe(module: str, name: str = "") -> Any:
    """Return a module, or something in it, or None where this release has no such thing."""
    try:
        found = importlib.import_module(module)
    except Exception:  # noqa: BLE001  an engine's import may fail in any way
        return None
    return getattr(found, name, None) if name else found


def declared_variables(envs: Any) -> dict[str, Any]:
    """Return the variables of an ``envs`` object whose attributes are typed fields."""
    found = {}
    for name in dir(envs):
        if not name.isupper():
            continue
        held = next((vars(k)[name] for k in type(envs).__mro__ if name in vars(k)), None)
        row = {"type": type(held).__name__ if held is not None else None}
        row["default"] = plain(getattr(held, "default", None))
        found[name] = {key: value for key, value in row.items() if value is not None}
    return found


def router_of(module: str, package: str) -> dict[str, Any] | None:
    """Return the flags of a router, or None where it is not installed."""
    kind = maybe(module, "RouterArgs")
    if kind is None:
        return None
    parser = argparse.ArgumentParser(prog=package)
    kind.add_cli_args(parser, use_router_prefix=False)
    version = importlib.metadata.version(package)
    return {"package": package, "version": version, "flags": flags_of(parser)}


def write(found: dict[str, Any], path: str) -> None:
    """Write what an engine reads, and with which torch it was asked."""
    torch = maybe("torch")
    found["torch"] = getattr(torch, "__version__", "none") if torch else "none"
    Path(path).write_text(json.dumps(found, default=str))


def main(engine: str, path: str) -> None:
    """Write what the engine reads, as the script beside this one of its name asks it."""
    script = importlib.import_module(f"flag_script_{engine}")
    folder = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    write(getattr(script, engine)(sys.modules[__name__]), path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
