"""Every block of code on a page is right: it is run, or its kind's own parser takes it."""

import ast
import configparser
import importlib
import json
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
import yaml

from k31ctl.cli.mistakes import Mistake
from tests.documents import (
    PAGES,
    ROOT,
    Block,
    blocks,
    command_of,
    inline_commands,
    own_commands,
)

# ``docs/generate_cli.py`` runs every other console block, and ``test_docs.py`` compares.
NOT_RUN = [
    ("docs/engine.md", "minutes of measuring, of which another program takes the most"),
    ("docs/service.md", "minutes of load"),
]
TARGETS = set(re.findall(r"(?m)^(\w+):", (ROOT / "Makefile").read_text()))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def python(block: Block) -> None:
    """It compiles, and what it imports from us exists."""
    for node in ast.walk(ast.parse(block.body)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("k31ctl"):
            module = importlib.import_module(node.module or "")
            for name in node.names:
                assert hasattr(module, name.name), f"{node.module}.{name.name}"


def shell(block: Block) -> None:
    """Bash can read it; targets of make and extras of ours exist."""
    if block.kind != "console":
        done = subprocess.run(
            ["bash", "-n"], input=block.body, capture_output=True, text=True, check=False
        )
        assert not done.returncode, done.stderr
    for target in re.findall(r"(?m)^make (?:\w+=\S+ )*(\w+)", block.body):
        assert target in TARGETS, target
    for extras in re.findall(r"pip install .*(?:k31ctl|\.)\[([\w,]+)\]", block.body):
        assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys(), extras


def of_yaml(block: Block) -> None:
    assert list(yaml.safe_load_all(block.body))


def of_json(block: Block) -> None:
    json.loads(block.body)


def of_toml(block: Block) -> None:
    tomllib.loads(block.body)


def ini(block: Block) -> None:
    configparser.ConfigParser(strict=False).read_string(block.body)


def commands_alone(_: Block) -> None:
    """Nothing but the commands in it, which every block is asked for."""


KINDS: Final[dict[str, Callable[[Block], None]]] = {
    "python": python,
    "sh": shell,
    "bash": shell,
    "yaml": of_yaml,
    "json": of_json,
    "toml": of_toml,
    "ini": ini,
    "console": shell,
    "text": commands_alone,
    "indented": commands_alone,
}


def refusal(arguments: list[str]) -> str:
    """Why the program would not take these arguments; empty where it would."""
    try:
        command, left = command_of(arguments)
        if "--help" not in left and left != ["--version"]:
            command.make_context(command.name, [word for word in left if word != "--debug"])
    except KeyError as unknown:
        return f"there is no command {unknown}"
    except Mistake as mistake:
        return str(getattr(mistake, "message", mistake))
    return ""


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def check(block: Block) -> None:
    """Raise AssertionError where nothing would take what the block says."""
    assert block.kind in KINDS, f"{block}: nothing reads {block.kind!r}"
    try:
        KINDS[block.kind](block)
    except (ValueError, SyntaxError, configparser.Error, yaml.YAMLError) as error:
        raise AssertionError(f"{block}: {error}") from error
    for arguments in own_commands(block):
        why = refusal(arguments)
        # What a page writes before is there when its blocks are run.
        assert not why or why.endswith("does not exist."), f"{block}: {arguments}: {why}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_blocks_of_a_page_are_taken_by_what_reads_them(page: Path) -> None:
    for block in blocks(page):
        check(block)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_commands_in_the_sentences_of_a_page_exist_with_their_options(page: Path) -> None:
    for arguments in inline_commands(page):
        command, left = command_of(arguments)
        known = {option for own in command.params for option in (*own.opts, *own.secondary_opts)}
        given = {word.partition("=")[0] for word in left if word.startswith("--") and word != "--"}
        assert given <= known | {"--help", "--debug"}, f"{page.name}: k31ctl {arguments}"


def test_what_nothing_runs_says_why_and_is_known_here() -> None:
    consoles = [block for page in PAGES for block in blocks(page) if block.kind == "console"]
    left = [block for block in consoles if not block.body.startswith("$ k31ctl ")]
    assert [(named(block.page), block.why_not) for block in left] == NOT_RUN


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("sh", "k31ctl plan --kv-dtyp fp8"),
        ("sh", "if ! k31ctl lint -- vllm serve a && k31ctl lint --fixx b; then true; fi"),
        ("sh", "make tests"),
        ("sh", "if true; then"),
        ("sh", "pip install 'k31ctl[engines]'"),
        ("console", "$ A=1 k31ctl bench http://a --concurency 1 2>&1 | head"),
        ("ini", "[Service]\nExecStart=/usr/bin/k31ctl fetsh a/b --to c"),
        ("text", "k31ctl fetch a/b --to c --rank x"),
        ("python", "from k31ctl.units import shew"),
        ("python", "print("),
        ("yaml", "a: b: c"),
        ("json", "{"),
        ("diff", "+"),
    ],
)
def test_a_block_that_is_wrong_is_found_out(kind: str, body: str) -> None:
    block = Block(page=ROOT / "README.md", line=1, kind=kind, body=body + "\n", why_not=None)
    with pytest.raises(AssertionError):
        check(block)
