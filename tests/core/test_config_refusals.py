"""What is not modelled, or cannot be true, is one InputError that names the field."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.architecture import model_from_config
from k31ctl.core.model import Model
from k31ctl.errors import InputError

DATA = Path(__file__).parent.parent / "data"
QUANTISATION = "text_config.quantization_config"
WEIGHTS = f"{QUANTISATION}.config_groups.group_0.weights"
LINEAR = "text_config.linear_attn_config"
NAN = float("nan")


def config_file(name: str = "kimi-k3") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.config.json").read_text())
    return found


def build(config: dict[str, Any]) -> Model:
    return model_from_config(config, model_id="m", name="M", where="config.json")


def changed(path: str, value: object) -> dict[str, Any]:
    config = config_file()
    *parents, last = path.split(".")
    place = config
    for name in parents:
        place = place[name]
    place[last] = value
    return config


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        # Quantisations of other kinds.
        (f"{QUANTISATION}.format", "nvfp4-pack-quantized", "format is 'nvfp4-pack-quantized'"),
        (f"{QUANTISATION}.quant_method", "modelopt", "quant_method is 'modelopt'"),
        (f"{QUANTISATION}.quant_method", "awq", "quant_method is 'awq'"),
        (f"{QUANTISATION}.quant_method", "gptq", "quant_method is 'gptq'"),
        (f"{QUANTISATION}.quant_method", "gguf", "quant_method is 'gguf'"),
        (f"{QUANTISATION}.quant_method", None, "quant_method is missing"),
        (f"{WEIGHTS}.num_bits", 8, "num_bits is 8"),
        (f"{WEIGHTS}.group_size", 128, "group_size is not 32"),
        (f"{WEIGHTS}.symmetric", False, "symmetric is false"),
        (f"{QUANTISATION}.config_groups", {}, "config_groups does not hold exactly one group"),
        (f"{QUANTISATION}.ignore", ["lm_head"], "ignore does not name self_attn"),
        ("dtype", "float16", "dtype is 'float16'"),
        # Layers of other kinds.
        ("text_config.num_key_value_heads", 8, "num_key_value_heads differs"),
        ("text_config.mla_use_nope", False, "mla_use_nope is not true"),
        ("text_config.moe_layer_freq", 2, "moe_layer_freq is not 1"),
        ("text_config.topk_method", "greedy", "topk_method is 'greedy'"),
        ("text_config.num_nextn_predict_layers", 1, "num_nextn_predict_layers is not 0"),
        ("tie_word_embeddings", True, "tie_word_embeddings is true"),
        ("vision_config.norm_type", "layernorm", "norm_type is not 'rmsnorm'"),
        # Values that cannot be true.
        ("text_config.hidden_size", "7168", "hidden_size is '7168', not a whole number"),
        ("text_config.hidden_size", True, "hidden_size is True, not a whole number"),
        ("text_config.hidden_size", NAN, "hidden_size is nan, not a whole number"),
        ("text_config.hidden_size", 7168.5, "hidden_size is 7168.5, not a whole number"),
        ("text_config.hidden_size", -1, "hidden_size is -1, outside"),
        ("text_config.hidden_size", 10**400, "hidden_size is"),
        ("text_config.hidden_size", [7168], "hidden_size is [7168], not a whole number"),
        ("text_config.hidden_size", None, "hidden_size is missing"),
        ("text_config.num_hidden_layers", 10**9, "num_hidden_layers is 1000000000, outside"),
        ("text_config.num_experts", 10**12, "num_experts is 1000000000000, outside"),
        ("text_config.num_experts_per_token", 897, "num_experts_per_token is 897, outside"),
        ("text_config.moe_intermediate_size", 3073, "moe_intermediate_size is 3073, not a mult"),
        ("text_config.first_k_dense_replace", 94, "first_k_dense_replace is 94, outside"),
        ("text_config", [], "text_config is [], not an object"),
        ("text_config", None, "text_config is missing"),
        ("architectures", "KimiK3ForConditionalGeneration", "architectures is not a list"),
        ("architectures", [], "architectures"),
        # Lists of layers.
        (f"{LINEAR}.kda_layers", list(range(1, 70)), "do not name each of 93 layers once"),
        (f"{LINEAR}.kda_layers", [], "do not name each of 93 layers once"),
        (f"{LINEAR}.kda_layers", [1, 1], "kda_layers names a layer twice"),
        (f"{LINEAR}.kda_layers", [0], "kda_layers[0] is 0, outside 1 to 93"),
        (f"{LINEAR}.kda_layers", [1] * 10**6, "kda_layers lists 1,000,000 layers"),
        (f"{LINEAR}.kda_layers", "1,2", "kda_layers is missing or not a list"),
        ("vision_config.merge_kernel_size", [2], "merge_kernel_size does not hold two numbers"),
    ],
)
def test_a_field_that_cannot_be_modelled_is_named(path: str, value: object, said: str) -> None:
    with pytest.raises(InputError) as caught:
        build(changed(path, value))
    assert said in caught.value.what
    assert caught.value.where.startswith("config.json")
    assert caught.value.remedy


def test_grouped_query_attention_is_refused_by_its_architecture() -> None:
    with pytest.raises(InputError, match="Qwen3ForCausalLM"):
        build(config_file("qwen3-0.6b"))


def test_k31_without_its_indexer_is_refused() -> None:
    with pytest.raises(InputError, match="dsa_config is missing"):
        build(changed("architectures", ["KimiK31ForConditionalGeneration"]))


def test_indexer_layers_that_are_not_the_full_attention_layers_are_refused() -> None:
    config = changed("architectures", ["KimiK31ForConditionalGeneration"])
    config["dsa_config"] = {"index_n_heads": 32, "index_head_dim": 128, "index_topk": 8}
    build(config)
    config["dsa_config"]["layers"] = [4, 8]
    with pytest.raises(InputError, match=r"dsa_config\.layers differs"):
        build(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [("weight_block_size", [64, 64]), ("weight_block_size", [128]), ("fmt", "e5m2")],
)
def test_other_kinds_of_fp8_are_refused(field: str, value: object) -> None:
    config = config_file("deepseek-v3")
    config["quantization_config"][field] = value
    with pytest.raises(InputError, match=field):
        build(config)


def leaves(value: object, path: str = "") -> list[str]:
    if not isinstance(value, dict):
        return [path]
    return [leaf for key, child in value.items() for leaf in leaves(child, f"{path}.{key}")]


LEAVES = [path.lstrip(".") for path in leaves(config_file()) if "id2label" not in path]
HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-3, 100), max_size=4),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
    st.sampled_from([10**18, -(10**18), 2**64, 0]),
)


@given(st.sampled_from(LEAVES), HOSTILE)
@settings(max_examples=300, deadline=None)
def test_any_value_in_any_field_gives_a_model_or_one_input_error(path: str, value: object) -> None:
    try:
        model = build(changed(path, value))
    except InputError:
        return
    assert model.templates
