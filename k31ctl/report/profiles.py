"""Profiles as a list, as their own text, and as a verdict on each file."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k31ctl.catalog.check import CheckResult
from k31ctl.catalog.flag_text import catalog_text
from k31ctl.catalog.listing import Listed, Shown
from k31ctl.catalog.store import Kind
from k31ctl.report.envelope import envelope
from k31ctl.report.files import make_folder, write_whole


def show_list(found: tuple[Listed, ...], *, kind: str | None, as_json: bool) -> None:
    """Write every profile, one line each under its kind."""
    if as_json:
        _write_json({"action": "list", "kind": kind}, {"profiles": found})
        return
    width = max((len(entry.id) for entry in found), default=0)
    last = ""
    for entry in found:
        if entry.kind != last:
            sys.stdout.write(f"{entry.kind}\n")
        last = entry.kind
        sys.stdout.write(f"  {entry.id:<{width}}  {entry.name}".rstrip() + "\n")


def show_profile(found: Shown, *, as_json: bool) -> None:
    """Write a profile as its file has it, under the path of the file."""
    if as_json:
        _write_json({"action": "show", "profile": f"{found.kind}/{found.id}"}, found.as_mapping())
        return
    end = "" if found.text.endswith("\n") else "\n"
    sys.stdout.write(f"# {found.path}\n{found.text}{end}")


def show_check(found: CheckResult, *, paths: tuple[Path, ...], as_json: bool) -> None:
    """Write the first thing that is wrong with each bad file, then how many files there are."""
    if as_json:
        findings = [
            {
                "id": "profile-invalid",
                "severity": "error",
                "message": bad.message,
                "remedy": bad.remedy,
                "source": "",
                "where": bad.where,
            }
            for bad in found.findings
        ]
        inputs = {"action": "check", "paths": paths}
        _write_json(inputs, {"num_files": found.num_files, "findings": findings})
        return
    for bad in found.findings:
        sys.stdout.write(f"{bad.where}\n  error  {bad.message}\n  do     {bad.remedy}\n")
    sys.stdout.write(f"{found.num_files} profiles, {len(found.findings)} with errors\n")


def show_extracted(found: Mapping[str, Any], *, folder: Path | None, as_json: bool) -> None:
    """Write a catalog of flags: into a folder of profiles, or on standard output."""
    place = Path("-") if folder is None else folder / Kind.FLAGS / f"{found['id']}.json"
    if folder is not None:
        make_folder(place.parent)
        write_whole(place, catalog_text(found))
    if as_json:
        shown = {"kind": Kind.FLAGS, "id": found["id"], "path": str(place), "profile": found}
        _write_json({"action": "extract", "profile": f"{Kind.FLAGS}/{found['id']}"}, shown)
    elif folder is None:
        sys.stdout.write(catalog_text(found))
    else:
        sys.stdout.write(f"{place}: {found['name']}\n")


def _write_json(inputs: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    sys.stdout.write(envelope("profiles", inputs=inputs, result=result))
