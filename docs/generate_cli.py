"""Renew what the documents quote from the program: its help, console output, planned numbers.

Run ``python docs/generate_cli.py`` after a change of behaviour; ``tests/test_docs.py`` calls the
same functions and fails where a document differs from them.

A ``console`` block holds commands after ``$`` and, under each, its output. An ``sh`` block that
begins with ``k31ctl`` or runs a page's ``write.py`` only has to end with exit code 0. A block under
``<!-- file: PATH -->`` is put into that file before the page's commands run; ``~`` in output stands
for the folder that they run in. In a table whose header has ``planned``, ``name`` and ``command``,
the planned value and the error are computed from the command's JSON. Under
``<!-- rows: COMMAND | NAME UNIT | ... -->`` each row of a table is the answer of that command with
the options in its first cell, and the other cells are those names, as precise as they are written.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from typer.main import get_command

from k31ctl.cli.main import app_with
from k31ctl.cli.main import main as run_program
from k31ctl.core.rules.check import RULES
from k31ctl.core.rules.failures import ELSEWHERE
from k31ctl.core.rules.read_rules import READINGS
from k31ctl.core.rules.waivers import WAIVER_RULES

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = ROOT / "docs"
PAGES: Final = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
ECHO: Final = "; echo $?"
UNITS: Final = {"B": 1, "GB": 10**9, "GiB": 2**30, "": 1, "M": 10**6, "ms": 1e-3, "%": 1e-2}

_RULES_HEAD: Final = """# Rules

Every rule that `k31ctl lint` asks about a launch, generated from the rules themselves. An error
does not serve, or serves wrongly; a warning may; an info is worth knowing. A rule that needs the
model, the hardware or the container says nothing where that is not known. Reports are numbered as
in a survey of 55 known failures of Kimi K3 and its relatives.

| rule | severity | engines | when | do | source |
|---|---|---|---|---|---|"""
_HELPS: Final = """
import sys
from k31ctl.cli.main import main
for command in sys.argv[1:]:
    print("\\f", flush=True)
    try:
        main([*command.split()[1:], "--help"])
    except SystemExit:
        pass
"""
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^<!-- file: (\S+) -->\n```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?m)^\$ ((?:.*\\\n)*.*)\n")
_ROWS = re.compile(r"<!-- rows: (k31ctl .+?) \| (.+) -->")
_NUMBER = re.compile(r"-?[\d,]+(?:\.\d+)?")


def shell(script: str, folder: Path) -> str:
    """Return what a script prints on both streams; raises where it ends in failure."""
    programs = folder / ".bin"
    programs.mkdir(exist_ok=True)
    for name, arguments in (("k31ctl", "-m k31ctl"), ("python3", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "80",
            "TERM": "dumb",
            "NO_COLOR": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode} from: {script}\n{done.stdout}")
    return done.stdout


def said(command: str, folder: Path) -> str:
    """Return what a command prints, in this process where no shell is needed for it."""
    plain = command.removesuffix(ECHO)
    program, _, filters = plain.partition(" | ")
    if set(program) & set("|<>;$") or (filters and plain != command):
        return shell(command, folder)
    printed, code = StringIO(), 0
    try:
        with chdir(folder), redirect_stdout(printed), redirect_stderr(printed):
            run_program(shlex.split(program, comments=True)[1:])
    except SystemExit as stop:
        code = int(stop.code or 0)
    if code and plain == command:
        raise RuntimeError(f"exit {code} from: {command}\n{printed.getvalue()}")
    if filters:
        return filtered(printed.getvalue(), filters)
    return printed.getvalue() + (f"{code}\n" if plain != command else "")


def filtered(text: str, filters: str) -> str:
    """Return what comes out of the rest of a pipe."""
    command = ["bash", "-c", filters]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def renewed(page: str) -> str:
    """Return a page with its console output and its planned numbers as they are now."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in _FILE.findall(page):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
        text = _FENCE.sub(lambda found: _renewed_block(found, folder), page)
        return "\n".join(_renewed_rows(text.split("\n"), folder))


def _renewed_block(found: re.Match[str], folder: Path) -> str:
    kind, body = found.groups()
    if kind == "sh" and body.startswith("python3 write.py"):
        shell(body, folder)
    if kind == "sh" and body.startswith("k31ctl "):
        for command in body.splitlines():
            said(command, folder)
    if kind != "console" or not body.startswith("$ k31ctl"):
        return found[0]
    commands = _COMMAND.findall(body)
    shown = "".join(f"$ {command}\n{_output(command, folder)}" for command in commands)
    return f"```console\n{shown}```"


def _output(command: str, folder: Path) -> str:
    lines = (
        said(command.replace("\\\n", " "), folder)
        .replace(f"{folder.resolve()}/", "~/")
        .splitlines()
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _renewed_rows(lines: list[str], folder: Path) -> Iterator[str]:
    header: list[str] = []
    rows: re.Match[str] | None = None
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            rows = _ROWS.fullmatch(line) or (rows if not line and not header else None)
            header = []
        elif not header:
            header = cells
        elif rows and set(line) - set("|-: "):
            yield "| " + " | ".join(_answered(cells, rows[1], rows[2].split(" | "), folder)) + " |"
            continue
        elif {"planned", "command", "name"} <= {*header} and set(line) - set("|-: "):
            row = dict(zip(header, cells, strict=True))
            yield "| " + " | ".join(_renewed_row(row, folder).values()) + " |"
            continue
        yield line


def _renewed_row(row: dict[str, str], folder: Path) -> dict[str, str]:
    """Return a row with its planned value, as precise as it is written, and its relative error."""
    command, name = row["command"].strip("`"), row["name"].strip("`")
    value = _named(_result(command, folder), name) / UNITS[row["unit"]]
    decimals = _decimals(row["planned"])
    planned = f"{value:,.{decimals}f}"
    changed = {"planned": planned}
    if "error" in row:
        published = _NUMBER.match(row["published"])
        exact = float(published[0].replace(",", "")) if published else 0.0
        error = (round(value, decimals) / exact - 1) * 100 if exact else None
        changed["error"] = "-" if error is None else f"{error:+.2f} %".replace("-0.00", "+0.00")
    return row | changed


def _answered(cells: list[str], command: str, names: list[str], folder: Path) -> Iterator[str]:
    """Yield a row's options and, for each name, what the command says with them."""
    result = _result(f"{command} {cells[0].strip('`')}", folder)
    yield cells[0]
    for cell, column in zip(cells[1:], names, strict=True):
        name, _, unit = column.partition(" ")
        yield f"{_named(result, name) / UNITS[unit]:,.{_decimals(cell)}f}"


def _result(command: str, folder: Path) -> Any:
    return json.loads(said(f"{command} --json", folder))["result"]


def _named(result: Any, name: str) -> Any:
    for part in name.split("."):
        result = result[int(part)] if isinstance(result, list) else result[part]
    return result


def _decimals(cell: str) -> int:
    """How many decimals a cell is written with."""
    return len(cell.partition(".")[2])


def cli_page() -> str:
    """Return the page of every command's own help."""
    found = ["# Command line", "", "What every command says to `--help`, 80 columns wide.", ""]
    commands = list(_commands(get_command(app_with()), "k31ctl"))
    with TemporaryDirectory() as name:
        script = f"python3 -c {shlex.quote(_HELPS)} {shlex.join(commands)}"
        texts = shell(script, Path(name)).split("\f")[1:]
    for command, text in zip(commands, texts, strict=True):
        lines = [line.rstrip() for line in text.strip("\n").splitlines()]
        found += [f"## {command}", "", "```text", *lines, "```", ""]
    return "\n".join(found)


def _commands(command: Any, name: str) -> Iterator[str]:
    yield name
    for child, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{name} {child}")


def rules_page() -> str:
    """Return the page of every rule, and of the reports that no rule speaks of."""
    found = [_RULES_HEAD]
    for reading in READINGS.values():
        reports = _reports(reading.failures)
        found.append(
            f"| `{reading.id}` | {reading.severity.value} | all | {reading.about} | "
            f"{reading.remedy} | the release's own argument parser{reports} |"
        )
    for rule in RULES:
        since = f" from {rule.since}" if rule.since else ""
        until = f" before {rule.until}" if rule.until else ""
        engines = f"{', '.join(rule.engines) or 'all'}{since}{until}"
        found.append(
            f"| `{rule.id}` | {rule.severity.value} | {engines} | {rule.about} | {rule.remedy} | "
            f"{rule.source}{_reports(rule.failures)} |"
        )
    found += [
        f"| `{rule_id}` | {severity.value} | all | {about} | {remedy} | "
        "[waiving a finding](lint.md#waiving-a-finding) |"
        for rule_id, severity, about, remedy in WAIVER_RULES
    ]
    found += ["", "## Reports without a rule", "", "| report | why |", "|---|---|"]
    found += [f"| {number} | {why} |" for number, why in ELSEWHERE.items()]
    return "\n".join((*found, ""))


def _reports(numbers: tuple[int, ...]) -> str:
    return f" (report {', '.join(map(str, numbers))})" if numbers else ""


def main() -> None:
    """Write every page anew."""
    (DOCS / "rules.md").write_text(rules_page())
    (DOCS / "cli.md").write_text(cli_page())
    for page in PAGES:
        page.write_text(renewed(page.read_text()))


if __name__ == "__main__":
    main()
