"""Every command that is written, read by the released engine's own argument parser.

The engines are gigabytes and are not installed with this package. Set K31CTL_ENGINE_PYTHON to an
interpreter that has vLLM 0.33.0, SGLang 0.5.23 or TokenSpeed 0.1.1 (no GPU is needed).
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

import k31ctl
from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.launch import Form
from k31ctl.core.launch_form import find_call
from k31ctl.core.recipe import Recipe, Role
from k31ctl.errors import RefusedError, UsageError
from k31ctl.serve.asked import Asked, Target
from k31ctl.serve.launch_files import launch_files, rollout
from k31ctl.serve.own_findings import starts_engine
from k31ctl.serve.read.found import FoundLaunch
from k31ctl.serve.read.launch_file import launches_in
from k31ctl.serve.read.source import source_of
from tests.serve.launches import NOWHERE, SIZES, asked, node_of, parts

PYTHON = os.environ.get("K31CTL_ENGINE_PYTHON", "")
SCRIPT = Path(__file__).with_name("real_parsers.py")
BRANCH = {"vllm": "vllm@main", "sglang": "sglang@kimi-k31-pro"}
OF_DYNAMO = {
    Form.DYNAMO_VLLM: ("--dyn-tool-call-parser", "--dyn-reasoning-parser", "--disaggregation-mode"),
    Form.DYNAMO_SGLANG: ("--dyn-tool-call-parser", "--dyn-reasoning-parser"),
}

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(not PYTHON, reason="K31CTL_ENGINE_PYTHON names no interpreter"),
]


def words_of(found: FoundLaunch) -> list[str]:
    """The engine's words; what is known only at run time stands as a rank or an address.

    The words of a script's array that only followers have are read as one unknown word.
    """
    call = find_call(found.texts)
    assert call is not None
    words = [_known(word.text, word.resolved) for word in found.words[call.start :]]
    if call.form in OF_DYNAMO:
        own = {at for name in OF_DYNAMO[call.form] if name in words for at in _pair(words, name)}
        words = [w for at, w in enumerate(words) if at not in own and w != "--enable-multimodal"]
    return words


def _known(text: str, resolved: bool) -> str:
    if resolved:
        return text
    return "--headless" if text == "$args" else "1"


def _pair(words: list[str], name: str) -> tuple[int, int]:
    return words.index(name), words.index(name) + 1


def recipe_wish(recipe: Recipe, target: Target) -> tuple[str, Asked]:
    """The node and the wish that a recipe's cell stands for."""
    on, nodes = node_of(recipe, recipe.hardware[0])
    sizes = {size: recipe.layout.get(size, 1) for size in SIZES}
    if "--enable-expert-parallel" in recipe.flags and recipe.engine == "vllm":
        sizes["ep"] = sizes["tp"] * sizes["dp"]
    image = "registry.example/engine:1"
    return on, asked(nodes=nodes, target=target, image=image, role=recipe.role, **sizes)


def written(engine: str) -> tuple[list[str], list[list[str]]]:
    """Every command of every recipe in every format, each under a name."""
    names, commands = [], []
    recipes = [r for r in parts(engine=engine).recipes if r.nodes and r.role is not Role.OVERLAY]
    for recipe in recipes:
        for target in Target:
            on, wish = recipe_wish(recipe, target)
            gathered = parts(engine=engine, on=on)
            try:
                files = launch_files(rollout(gathered, wish, NOWHERE), target)
            except (RefusedError, UsageError):
                continue  # what does not fit, or what a format does not take, is not written
            for file in files:
                if not starts_engine(file):
                    continue
                for found in launches_in(source_of(file.text.encode(), name=file.path)):
                    names.append(f"{recipe.id} as {target}: {file.path}")
                    commands.append(words_of(found))
    return names, commands


def written_for_k31(engine: str) -> tuple[list[str], list[list[str]]]:
    """The commands for Kimi K3.1 on its branch, whose flags are those of the release."""
    names, commands = [], []
    for on, nodes in (("8x-b300", 1), ("8x-h200", 2), ("8x-mi355x", 1)):
        for kv in (None, KvFormat.FP8, KvFormat.BF16):
            gathered = parts("kimi-k3.1-pro", BRANCH[engine], on)
            wish = asked(nodes=nodes, image="registry.example/engine:1", kv_dtype=kv)
            (file,) = (
                file
                for file in launch_files(rollout(gathered, wish, NOWHERE), Target.SHELL)
                if starts_engine(file)
            )
            (found,) = launches_in(source_of(file.text.encode(), name=file.path))
            names.append(f"kimi-k3.1-pro on {on}, {kv}")
            commands.append(words_of(found))
    return names, commands


def complaints(engine: str, commands: list[list[str]]) -> list[str]:
    scripts = str(Path(k31ctl.__file__).parent / "host")
    done = subprocess.run(
        [PYTHON, str(SCRIPT), engine],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "K31CTL_FLAG_SCRIPTS": scripts},
    )
    if done.returncode:
        pytest.skip(f"{engine} cannot be imported there: {done.stderr.strip()[-200:]}")
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tokenspeed"])
def test_the_released_parser_takes_every_command_that_is_written(engine: str) -> None:
    names, commands = written(engine)
    assert len(commands) > 30
    told = complaints(engine, commands)
    assert [f"{name}: {said}" for name, said in zip(names, told, strict=True) if said] == []


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_released_parser_takes_the_flags_of_sparse_attention(engine: str) -> None:
    names, commands = written_for_k31(engine)
    told = complaints(engine, commands)
    assert [f"{name}: {said}" for name, said in zip(names, told, strict=True) if said] == []


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tokenspeed"])
def test_the_released_parser_refuses_what_is_wrong(engine: str) -> None:
    wrong = ["moonshotai/Kimi-K3"] if engine != "sglang" else ["--model-path", "moonshotai/Kimi-K3"]
    assert complaints(engine, [[*wrong, "--tensor-parallel-size", "eight"]]) != [""]
