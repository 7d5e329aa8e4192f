"""Checkpoints that are whole, that lack something, and that are of another shape."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from k31ctl.engine.checkpoint import Checkpoint
from k31ctl.engine.mxfp4 import dequantise
from k31ctl.errors import InputError
from tests.engine.conftest import Tiny
from tests.engine.runs import error, in_pieces, load, prompt

FIRST, SECOND = (f"model-0000{i}-of-000002.safetensors" for i in (1, 2))
LAYER = "language_model.model.layers.0."
EXPERT = "language_model.model.layers.1.block_sparse_moe.experts.3.w2.weight_packed"


@pytest.fixture
def copy(tiny: Tiny, tmp_path: Path) -> Path:
    shutil.copytree(tiny("kimi-k3"), tmp_path / "copy")
    return tmp_path / "copy"


def without(folder: Path, file: str, name: str) -> None:
    tensors = load_file(folder / file)
    del tensors[name]
    save_file(tensors, folder / file)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    del index["weight_map"][name]
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_a_missing_tensor_is_named_before_anything_is_loaded(copy: Path) -> None:
    without(copy, FIRST, EXPERT)
    with pytest.raises(InputError) as caught:
        load(copy)
    assert "experts.3.w2.weight is missing: this is not the whole model" in caught.value.what
    assert "k31ctl inspect" in caught.value.remedy


def test_a_shard_that_is_not_there_is_named(copy: Path) -> None:
    (copy / SECOND).unlink()
    with pytest.raises(InputError, match=f"{SECOND} is not here: this is a part"):
        load(copy)


def test_layers_of_a_partial_checkpoint_load_where_all_of_theirs_is_there(copy: Path) -> None:
    without(copy, SECOND, "language_model.model.layers.5.input_layernorm.weight")
    assert list(load(copy, layers=range(3)).layers) == [0, 1, 2]
    with pytest.raises(InputError, match=r"layers\.5\.input_layernorm"):
        load(copy)


def test_layers_that_the_model_does_not_have_are_refused(copy: Path) -> None:
    with pytest.raises(InputError, match="layers 4 to 8 are not all there"):
        load(copy, layers=range(4, 9))


def test_a_tensor_of_another_shape_is_named_with_both(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["text_config"]["kv_lora_rank"] = 32
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"kv_a_proj_with_mqa.weight is \[80, 128\], not \[48"):
        load(copy)


def test_a_file_that_is_cut_short_is_an_error_of_the_file(copy: Path) -> None:
    content = (copy / FIRST).read_bytes()
    (copy / FIRST).write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=f"{FIRST} cannot be read"):
        load(copy)


def changed(folder: Path, name: str, change: Callable[[Tensor], Tensor]) -> None:
    for file in (FIRST, SECOND):
        tensors = load_file(folder / file)
        if name in tensors:
            save_file(tensors | {name: change(tensors[name])}, folder / file)


BIAS = "language_model.model.layers.1.block_sparse_moe.gate.e_score_correction_bias"
SCALE = EXPERT.replace("packed", "scale")
A_LOG = f"{LAYER}self_attn.A_log"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (BIAS, lambda found: found.index_fill(0, torch.tensor([2]), torch.nan), "no finite number"),
        (f"{LAYER}self_attn.o_proj.weight", lambda found: found / 0, "no finite number"),
        (SCALE, lambda found: found.index_fill(0, torch.tensor([1]), 255), "no finite number"),
        (SCALE, lambda found: found.bfloat16(), "weight_scale is stored as bfloat16"),
        (BIAS, lambda found: found.byte(), "e_score_correction_bias is stored as uint8"),
        (A_LOG, lambda found: found[:1], r"A_log is \[1\], not \[\d\] or \[1, 1, \d, 1\] or \[128"),
    ],
)
def test_what_cannot_be_a_weight_is_named(
    copy: Path, name: str, change: Callable[[Tensor], Tensor], message: str
) -> None:
    changed(copy, name, change)
    with pytest.raises(InputError, match=message):
        load(copy)


def test_an_expert_that_is_packed_in_part_is_spelled_out(copy: Path) -> None:
    expected = in_pieces(load(copy), prompt(20), [20])
    (copy / "model.safetensors.index.json").unlink()
    for file in (FIRST, SECOND):
        tensors = load_file(copy / file)
        if EXPERT in tensors:
            packed, scale = tensors.pop(EXPERT), tensors.pop(SCALE)
            tensors[EXPERT.removesuffix("_packed")] = dequantise(packed, scale).bfloat16()
            save_file(tensors, copy / file)
    model = load(copy, packed_experts=True)
    assert error(in_pieces(model, prompt(20), [20]), expected) < 1e-6


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": 3}'])
def test_an_index_that_is_none_is_told(copy: Path, text: str) -> None:
    (copy / "model.safetensors.index.json").write_text(text)
    with pytest.raises(InputError, match="the index is not readable"):
        load(copy)


def test_files_are_read_without_an_index_and_under_other_names_of_the_mixes(copy: Path) -> None:
    expected = in_pieces(load(copy), prompt(20), [20])
    (copy / "model.safetensors.index.json").unlink()
    tensors = load_file(copy / FIRST)
    for part in ("norm", "proj"):
        name = f"{LAYER}mlp_res_{part}.weight"
        tensors[f"{LAYER}mlp_res.{part}_weight"] = tensors.pop(name)
    save_file(tensors, copy / FIRST)
    assert torch.equal(in_pieces(load(copy), prompt(20), [20]), expected)


def test_experts_in_bf16_are_known_by_their_tensors(copy: Path) -> None:
    packed = in_pieces(load(copy), prompt(20), [20])
    (copy / "model.safetensors.index.json").unlink()
    for file in (FIRST, SECOND):
        tensors = load_file(copy / file)
        for name in [name for name in tensors if name.endswith("weight_packed")]:
            stem = name.removesuffix("_packed")
            values, scale = tensors.pop(name), tensors.pop(f"{stem}_scale")
            tensors[stem] = dequantise(values, scale, dtype=torch.bfloat16)
        save_file(tensors, copy / file)
    assert error(in_pieces(load(copy), prompt(20), [20]), packed) < 1e-6


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("hidden_act", "gelu", "hidden_act is 'gelu'; silu and situ are computed"),
        ("moe_router_activation_func", "softmax", "sigmoid is computed"),
        ("moe_layer_freq", 2, "skipped layers are not computed"),
        ("routed_scaling_factor", "big", "is 'big', not a number"),
        ("num_expert_group", 3, "does not part 8 experts evenly"),
        ("num_expert_group", 8, "does not part 8 experts evenly by pairs"),
        ("topk_group", 2, "is more than the 1 groups"),
        ("rms_norm_eps", -1, "is -1, not above 0"),
        ("activation_situ_linear_beta", 0, "is 0, not above 0"),
    ],
)
def test_a_configuration_that_is_not_computed_is_refused(
    copy: Path, field: str, value: object, message: str
) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["text_config"][field] = value
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=message):
        _ = Checkpoint(copy).config


def test_another_architecture_is_refused_by_name(copy: Path) -> None:
    (copy / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    with pytest.raises(InputError, match="LlamaForCausalLM"):
        _ = Checkpoint(copy).config
