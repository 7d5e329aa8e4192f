"""The table of blocks in docs/engine.md against the functions themselves."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from k31ctl.engine.blocks import dense_mlp, dequantise, kda_layer, moe_layer
from k31ctl.engine.config import Activation, Router
from k31ctl.engine.kda import kda_chunked, kda_recurrent
from k31ctl.engine.linear import situ
from tests.engine.test_blocks import kda_inputs, numbers

PAGE = (Path(__file__).parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("## Blocks on plain tensors\n")[2].partition("\n## ")[0]
NAMES: dict[str, Any] = {"torch": torch}
exec(re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)[0], NAMES)


def documented() -> Iterator[ast.Call]:
    for row in re.findall(r"^\| (`.*?) \|", SECTION, re.MULTILINE):
        for text in re.findall(r"`([a-z_]\w*\(.*?\))`(?:,|$)", row):
            call = ast.parse(text.replace("…", "..."), mode="eval").body
            assert isinstance(call, ast.Call)
            yield call


def is_open(value: ast.expr) -> bool:
    return "..." in ast.unparse(value)


CALLS = [call for call in documented() if not any(is_open(value) for value in call.args[:1])]
BY_NAME = {ast.unparse(call.func): call for call in CALLS}


def test_every_function_that_the_page_imports_is_in_its_table() -> None:
    imported = {name for name, value in NAMES.items() if inspect.isfunction(value)}
    assert imported - set(BY_NAME) == {"kda_chunked", "rms_norm"}  # the one is "(…)", the other x


@pytest.mark.parametrize("name", BY_NAME)
def test_what_the_page_gives_a_value_may_be_left_out_and_has_that_value(name: str) -> None:
    call, signature = BY_NAME[name], inspect.signature(NAMES[name])
    given = {word.arg: word.value for word in call.keywords if word.arg}
    needed = {word: ... for word, value in given.items() if is_open(value)}
    signature.bind(*call.args, **needed)
    for word in given.keys() - needed.keys():
        expected = eval(ast.unparse(given[word]), NAMES)
        assert signature.parameters[word].default == expected


@pytest.mark.parametrize("core", [kda_recurrent, kda_chunked])
def test_the_core_of_kda_divides_by_the_root_of_the_key_width(core: Any) -> None:
    *inputs, state = kda_inputs(9, decay=5.0)
    explicit = core(*inputs, state.clone(), scale=32**-0.5)
    assert torch.equal(core(*inputs, state.clone()), explicit)


def test_blocks_run_with_nothing_but_what_they_need() -> None:
    gate, up = numbers(3, 5), numbers(3, 5, seed=1)
    assert torch.equal(situ(gate, up), situ(gate, up, gate_bound=4.0, up_bound=25.0))
    packed, scale = torch.full((1, 16), 0x22, dtype=torch.uint8), torch.full((1, 1), 127).byte()
    assert dequantise(packed, scale).tolist() == [[1.0] * 32]
    mlp = {"gate_proj": (6, 8), "up_proj": (6, 8), "down_proj": (8, 6)}
    expert = {"w1": (6, 8), "w3": (6, 8), "w2": (8, 6)}
    tensors = {f"experts.{e}.{w}.weight": numbers(*s) for e in "01" for w, s in expert.items()}
    tensors |= {"gate.weight": numbers(2, 8), "gate.e_score_correction_bias": torch.zeros(2)}
    tensors |= {f"shared_experts.{name}.weight": numbers(*s) for name, s in mlp.items()}
    router = Router(
        num_experts=2,
        num_chosen=1,
        num_groups=1,
        num_chosen_groups=1,
        renormalised=True,
        scale=1.0,
    )
    x, activation = numbers(4, 8), Activation(gate_bound=4.0, up_bound=25.0)
    explicit = moe_layer(x, tensors, router=router, activation=activation, eps=1e-5)
    assert torch.equal(moe_layer(x, tensors, router=router), explicit)
    plain = {f"{name}.weight": numbers(*shape) for name, shape in mlp.items()}
    assert dense_mlp(x, plain, activation=activation).shape == (4, 8)


def test_a_kda_layer_is_bounded_as_in_k3_unless_told() -> None:
    names = {f"{n}_proj.weight": numbers(64, 40, seed=i) / 6 for i, n in enumerate("qkv")}
    names |= {f"{n}_conv1d.weight": numbers(64, 1, 4, seed=i) for i, n in enumerate("qkv")}
    names |= {"f_a_proj.weight": numbers(16, 40), "f_b_proj.weight": numbers(64, 16)}
    names |= {"b_proj.weight": numbers(4, 40), "o_proj.weight": numbers(40, 64) / 8}
    names |= {"o_norm.weight": torch.ones(16), "dt_bias": numbers(64), "A_log": torch.zeros(4)}
    names |= {"g_proj.weight": numbers(64, 40)}
    x = numbers(20, 40, seed=8)
    explicit, _ = kda_layer(x, names, eps=1e-5, decay_bound=-5.0)
    assert torch.equal(kda_layer(x, names)[0], explicit)
    assert not torch.equal(kda_layer(x, names, decay_bound=None)[0], explicit)
