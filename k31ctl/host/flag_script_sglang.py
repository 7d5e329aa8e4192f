"""What ``sglang serve`` reads, by its own interpreter; ``flag_script.py`` runs it."""

import argparse
import ast
import importlib
import os
import types
from pathlib import Path
from typing import Any


def sglang(common: Any) -> dict[str, Any]:
    """Return what ``sglang serve`` reads, and its router where that is installed."""
    package = importlib.import_module("sglang")
    parser = argparse.ArgumentParser(prog="sglang serve")
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    rows = common.flags_of(parser)
    sections = sglang_sections(common)
    for row in rows:
        row.pop("group", None)
        if row["dest"] in sections:
            row["group"] = sections[row["dest"]]
    algorithms = common.maybe("sglang.srt.speculative.spec_info", "SpeculativeAlgorithm")
    lists = vars(common.maybe("sglang.srt.arg_groups.choices") or types.ModuleType("none"))
    found = {
        "version": package.__version__,
        "command": "sglang serve  (also: python -m sglang.launch_server)",
        "method": "sglang.srt.server_args.ServerArgs.add_cli_args",
        "flags": rows,
        "runtime_choices": {"--speculative-algorithm": sglang_algorithms(algorithms)},
        "choice_lists": {
            name: common.plain(value)
            for name, value in lists.items()
            if name.isupper() and isinstance(value, list | tuple)
        },
        "environment_variables": common.declared_variables(
            common.maybe("sglang.srt.environ", "envs")
        ),
        "environment_names_in_source": common.quoted_names(package, "SGLANG_|AITER_"),
    }
    router = common.router_of("sglang_router.router_args", "sglang-router")
    return {**found, "gateway": router} if router else found


def sglang_algorithms(held: Any) -> list[str]:
    """Return the names of the algorithms, whether they are an enum's or a class's."""
    members = getattr(held, "__members__", None) or vars(held or type("none", (), {}))
    return sorted(name for name in members if name.isupper() and not name.startswith("_"))


def sglang_sections(common: Any) -> dict[str, str]:
    """Return the file that declares each field, as its group."""
    groups = common.maybe("sglang.srt.arg_groups")
    found: dict[str, str] = {}
    folder = Path(groups.__file__).parent / "fields" if groups else Path(os.devnull)
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.setdefault(node.target.id, path.stem)
    return found
