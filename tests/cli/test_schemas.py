"""Every command's document meets the schema that is shipped with it."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.main import get_command

import k31ctl as package
from k31ctl.cli.main import app_with
from k31ctl.core.gates import parse_gate

Run = Callable[..., subprocess.CompletedProcess[str]]
SCHEMAS = sorted((Path(package.__file__).parent / "schemas").glob("*.json"))


def schema(command: str) -> dict[str, Any]:
    """The shipped schema of a command."""
    (path,) = [p for p in SCHEMAS if p.name == f"{command}.v1.schema.json"]
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("path", SCHEMAS, ids=lambda path: path.name)
def test_every_shipped_schema_is_a_schema_named_as_its_document(path: Path) -> None:
    found = json.loads(path.read_text())
    Draft202012Validator.check_schema(found)
    command, version = path.name.split(".")[:2]
    assert found["$id"] == f"k31ctl/{command}/{version}"


def keys_of(found: Any) -> Iterator[str]:
    """Every name that a schema gives a property, however deep."""
    if isinstance(found, dict):
        yield from found.get("properties", ())
    for inner in found.values() if isinstance(found, dict) else found:
        if isinstance(inner, dict | list):
            yield from keys_of(inner)


def gates_in_help(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """The command and the example of every ``--gate``."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from gates_in_help(inner, (*words, name))
    for option in command.params:
        if option.name == "gate":
            yield " ".join(words), option.help.removesuffix(".").rpartition(" ")[2]


def test_the_gate_that_a_command_s_help_shows_is_one_of_its_own_result() -> None:
    examples = dict(gates_in_help(get_command(app_with())))
    assert len(examples) == 10
    for command, example in examples.items():
        name = {"bench load": "bench", "bench conformance": "conformance"}.get(command, command)
        result = schema(name.replace(" ", "-"))["properties"]["result"]
        known = set(keys_of([result, schema(name.replace(" ", "-")).get("$defs", {})]))
        of_launches = {"warnings"} if command == "serve" else set()  # counted for gates alone
        assert set(parse_gate(example).name.split(".")) <= known | of_launches, command


@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "engines"), ("show", "8x-b300"), ("check",)]
)
def test_profiles_meets_its_schema(k31ctl: Run, arguments: tuple[str, ...]) -> None:
    document = json.loads(k31ctl("profiles", *arguments, "--json").stdout)
    Draft202012Validator(schema("profiles")).validate(document)


def test_inspect_meets_its_schema(k31ctl: Run, tmp_path: Path) -> None:
    header = {
        "language_model.model.norm.weight": {
            "dtype": "F32",
            "shape": [4],
            "data_offsets": [0, 16],
        },
        "stranger": {"dtype": "BF16", "shape": [2], "data_offsets": [16, 20]},
    }
    text = json.dumps(header).encode()
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(20))
    done = k31ctl("inspect", str(tmp_path), "--model", "kimi-k3", "--json")
    assert done.returncode == 5
    document = json.loads(done.stdout)
    Draft202012Validator(schema("inspect")).validate(document)
    assert document["result"]["num_mismatched"] == 1
    assert document["result"]["unexpected"] == ["stranger"]
