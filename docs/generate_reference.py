"""Renew the tables that pages take from the program's own data, and the page of its JSON documents.

A table stands between ``<!-- KIND: names -->`` and ``<!-- end -->``; a name may end in ``*``. Run
``python docs/generate_reference.py`` after a change of rules, checks, errors or schemas;
``tests/test_reference.py`` calls the same functions and fails where a page differs from them.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import k31ctl
from k31ctl import errors
from k31ctl.bench.conformance.registry import CHECKS
from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.recipes import recipes_for
from k31ctl.core.readiness import RULES as HOST_RULES
from k31ctl.core.rules.check import RULES
from k31ctl.core.rules.read_rules import READINGS
from k31ctl.core.rules.waivers import WAIVER_RULES
from k31ctl.core.server_log import TROUBLES
from k31ctl.serve.gather import ENGINES

DOCS: Final = Path(__file__).parent
SCHEMAS: Final = Path(k31ctl.__file__).parent / "schemas"
PAGES: Final = tuple(p for p in sorted(DOCS.glob("*.md")) if "<!-- end -->" in p.read_text("utf-8"))
_TABLE = re.compile(r"^<!-- ([\w-]+): (.+?) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
_CHOICE = re.compile(r"\(([^()]*)\)|'\?|\.\*")
_SCHEMAS_HEAD: Final = """# JSON documents

What `--json` prints, field by field, generated from the JSON Schemas that come with the program
(`k31ctl/schemas`). Every command prints one document: `schema`, `version`, `inputs`, `result`,
`assumptions`, `warnings`. `[]` is each entry of a list, `<name>` each name of an object; a field
that may be absent says so. Fields may come within a version; none goes or changes its meaning.
"""

Row = tuple[str, ...]


def _launch_rows() -> dict[str, Row]:
    found: dict[str, Row] = {}
    for rule in (*READINGS.values(), *RULES):
        engines = ", ".join(getattr(rule, "engines", ()))
        kind = f"{rule.severity.value}, {engines}" if engines else rule.severity.value
        found[rule.id] = (rule.about, rule.remedy, f"`{rule.id}` ({kind})")
    for name, severity, about, remedy in WAIVER_RULES:
        found[name] = (about, remedy, f"`{name}` ({severity.value})")
    return found


def _log_rows() -> dict[str, Row]:
    return {
        each.id: (
            " or ".join(f"`{text}`" for text in readable(each.pattern.pattern)),
            each.message,
            each.remedy,
            f"`{each.id}`",
        )
        for each in TROUBLES
    }


def _host_rows() -> dict[str, Row]:
    return {rule.id: (_told(rule.judge), f"`{rule.id}`") for rule in HOST_RULES}


def _contract_rows() -> dict[str, Row]:
    return {check.id: (check.title.rstrip("."), f"`{check.id}`") for check in CHECKS}


def _drift_rows() -> dict[str, Row]:
    """What published settings have that the release no longer takes, by engine and name."""
    store = Store(default_folders())
    recipes = [recipe for engine in ENGINES for recipe in recipes_for(store, engine=engine)]
    return {
        f"{recipe.engine}:{drift.subject} {drift.now}": (
            f"`{drift.subject}`",
            drift.now,
            drift.note,
        )
        for recipe in recipes
        for drift in recipe.drift
    }


def _exit_rows() -> dict[str, Row]:
    kinds = (k for k in errors.K31Error.__subclasses__() if k.__module__ == errors.__name__)
    ordered = sorted(kinds, key=lambda kind: (kind.exit_code, kind.__name__))
    return {kind.__name__: (str(kind.exit_code), _told(kind)) for kind in ordered}


TABLES: Final[Mapping[str, tuple[Row, Callable[[], dict[str, Row]]]]] = {
    "launch": (("in the launch", "do", "rule"), _launch_rows),
    "log": (("the log says", "it means", "do", "rule"), _log_rows),
    "machine": (("what should hold", "check of `k31ctl doctor`"), _host_rows),
    "contract": (("what is asked", "check of `k31ctl bench conformance`"), _contract_rows),
    "drift": (("recipes say", "now", "why"), _drift_rows),
    "exit": (("code", "when"), _exit_rows),
}


def _told(thing: object) -> str:
    """The first sentence of a docstring."""
    return (thing.__doc__ or "").split("\n")[0].replace("``", "`").rstrip(".")


def readable(pattern: str) -> list[str]:
    """Return what a pattern of a log line finds, as texts; ``...`` stands for anything."""
    choices = re.split(r"\|(?![^(]*\))", pattern)
    return [text for choice in choices for text in _spelled(choice)]


def _spelled(pattern: str) -> list[str]:
    found = _CHOICE.search(pattern)
    if found is None:
        return [re.sub(r"\\(.)", r"\1", pattern)]
    inner = {"'?": "'", ".*": "..."}.get(found[0])
    options = [inner] if inner else found[1].split("|")
    before, after = pattern[: found.start()], pattern[found.end() :]
    return [re.sub(r"\\(.)", r"\1", before) + o + rest for o in options for rest in _spelled(after)]


def named(kind: str, names: str) -> list[str]:
    """Return the entries that a table names, in their own order; raises ValueError for none."""
    known, chosen = TABLES[kind][1](), []
    for pattern in (name.strip() for name in names.split(",")):
        matching = [each for each in known if fnmatchcase(each, pattern)]
        if not matching:
            raise ValueError(f"there is no {kind} {pattern!r}")
        chosen += [each for each in matching if each not in chosen]
    return chosen


def filled(page: str) -> str:
    """Return a page with its tables as the program's data has them now."""
    return _TABLE.sub(lambda found: _table(found[1], found[2]), page)


def _table(kind: str, names: str) -> str:
    header, rows = TABLES[kind][0], TABLES[kind][1]()
    lines = [_line(header), _line(("---",) * len(header))]
    lines += [_line(tuple(map(_cell, rows[each]))) for each in named(kind, names)]
    return "\n".join((f"<!-- {kind}: {names} -->", *lines, "<!-- end -->"))


def _line(cells: Row) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def schemas_page() -> str:
    """Return the page of every document's fields."""
    lines = [_SCHEMAS_HEAD]
    for path in sorted(SCHEMAS.glob("*.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        lines += [f"## {path.name.split('.')[0]}", "", f"`{schema['$id']}`: {schema['title']}.", ""]
        lines += [schema["description"], ""] if "description" in schema else []
        lines += _fields(schema)
        for name, part in schema.get("$defs", {}).items():
            lines += [f"`{name}` of `{schema['$id']}`:", "", *_fields(part)]
    return "\n".join(lines)


def _fields(schema: dict[str, Any]) -> list[str]:
    rows = list(_walk(schema, "", required=True))
    if not rows:
        return [f"{_type(schema)}. {schema.get('description', '')}".rstrip(), ""]
    return ["| field | type | notes |", "|---|---|---|", *rows, ""]


def _walk(schema: dict[str, Any], path: str, *, required: bool) -> Iterator[str]:
    """Yield a row for a field and for each below it; ``path`` is empty at the top."""
    if path:
        about = schema.get("description", "")
        notes = "; ".join(text for text in (about, "" if required else "may be absent") if text)
        yield _line((f"`{path}`", _cell(_type(schema)), _cell(notes)))
    for part in (schema, *_parts(schema)):
        needed = part.get("required", ())
        for name, inner in part.get("properties", {}).items():
            yield from _walk(inner, f"{path}.{name}".lstrip("."), required=name in needed)
        for key, mark in (("items", "[]"), ("additionalProperties", ".<name>")):
            inner = part.get(key)
            if isinstance(inner, dict) and _is_deep(inner):
                yield from _walk(inner, f"{path}{mark}", required=True)


def _parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for key in ("oneOf", "anyOf", "allOf") for part in schema.get(key, ())]


def _is_deep(schema: dict[str, Any]) -> bool:
    return any(key in schema for key in ("properties", "items", "additionalProperties", "oneOf"))


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    if parts := _parts(schema):
        return " or ".join(dict.fromkeys(map(_type, parts)))
    kinds = schema.get("type", "anything")
    kind = " or ".join(kinds) if isinstance(kinds, list) else kinds
    inner = schema.get("items")
    return kind if not inner or _is_deep(inner) else f"{kind} of {_type(inner)}"


def main() -> None:
    """Write every page anew."""
    (DOCS / "schemas.md").write_text(schemas_page(), encoding="utf-8")
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
