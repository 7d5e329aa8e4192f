"""Totals worked out elsewhere: header sums of the releases, and the ledger of Kimi K3."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.catalog.models import load_model
from k31ctl.catalog.store import Store, default_folders
from k31ctl.core.architecture import model_from_config
from k31ctl.core.figure import Basis
from k31ctl.core.inventory import inventory
from k31ctl.core.model import Model

DATA = Path(__file__).parent.parent / "data"
STORE = Store(default_folders())


def model_of(config: dict[str, Any]) -> Model:
    return model_from_config(config, model_id="m", name="M", where="config.json")


def config_file(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.config.json").read_text())
    return found


@pytest.mark.parametrize(
    ("profile_id", "num_tensors", "total_params", "total_bytes"),
    [
        ("kimi-k3", 497_220, 2_779_931_834_976, 1_560_860_324_864),
        ("kimi-k3.1-pro", 497_340, 2_780_110_361_184, 1_561_217_377_280),
        ("kimi-linear-48b", 20_493, 49_122_681_728, 98_245_541_888),
        ("deepseek-v3.2", 92_425, 685_355_329_792, 689_469_018_240),
        ("kimi-k2.5", 208_550, 1_026_879_376_368, 595_148_192_736),
        # Less the 61 inv_freq buffers of these three releases: 15,616, 15,616 and 6,832 bytes.
        ("kimi-k2-thinking", 208_276 - 61, 1_026_408_232_448, 594_205_920_512 - 15_616),
        ("kimi-k2-instruct-0905", 139_644 - 61, 1_026_408_232_448, 1_029_173_265_504 - 15_616),
        ("kimi-k2-instruct", 139_644 - 61, 1_026_408_232_448, 1_029_173_256_720 - 6_832),
    ],
)
def test_a_profile_has_the_totals_of_its_release(
    profile_id: str, num_tensors: int, total_params: int, total_bytes: int
) -> None:
    found = inventory(load_model(STORE, profile_id))
    assert found.num_tensors == num_tensors
    assert found.total_params == total_params
    assert found.total_bytes == total_bytes


def test_deepseek_v3_has_the_totals_of_its_release() -> None:
    found = inventory(model_of(config_file("deepseek-v3")))
    assert (found.num_tensors, found.total_bytes) == (91_991, 688_574_839_360)


@pytest.mark.parametrize("name", ["kimi-k3", "kimi-k2.5"])
def test_the_released_config_and_the_profile_are_the_same_tensors(name: str) -> None:
    assert model_of(config_file(name)).templates == load_model(STORE, name).templates


def test_kimi_k3_ledger_line_by_line() -> None:
    found = inventory(load_model(STORE, "kimi-k3"))
    assert {g.group.value: (g.num_tensors, g.params, g.num_bytes) for g in found.groups} == {
        "routed experts, values": (247_296, 2_722_740_830_208, 1_361_370_415_104),
        "routed experts, scales": (247_296, 0, 85_085_650_944),
        "KDA projections": (552, 30_607_048_704, 61_214_097_408),
        "KDA small tensors": (414, 11_037_792, 44_160_000),
        "latent attention": (192, 5_572_706_304, 11_145_412_608),
        "shared experts": (276, 12_155_092_992, 24_310_185_984),
        "latent MoE projections": (276, 4_727_310_336, 9_454_620_672),
        "router": (184, 590_955_008, 1_182_074_880),
        "dense MLP": (3, 726_663_168, 1_453_326_336),
        "layer norms and residual mixes": (558, 3_999_744, 7_999_488),
        "final norm and output mix": (3, 21_504, 43_008),
        "embedding": (1, 1_174_405_120, 2_348_810_240),
        "lm_head": (1, 1_174_405_120, 2_348_810_240),
        "vision tower": (165, 401_214_464, 802_428_928),
        "projector": (3, 46_144_512, 92_289_024),
    }


@pytest.mark.parametrize(
    ("profile_id", "active"), [("kimi-k3", 104.19e9), ("kimi-k3.1-pro", 104.37e9)]
)
def test_active_parameters_are_those_of_one_text_token(profile_id: str, active: float) -> None:
    found = inventory(load_model(STORE, profile_id))
    assert found.active_params == pytest.approx(active, abs=0.005e9)


def test_a_total_equal_to_the_release_is_exact() -> None:
    assert inventory(load_model(STORE, "kimi-k3")).bases == (Basis.EXACT,)


@pytest.mark.parametrize("profile_id", ["kimi-k3.1-pro", "kimi-linear-48b", "deepseek-v3.2"])
def test_an_unresolved_width_or_type_is_marked_and_named(profile_id: str) -> None:
    model = load_model(STORE, profile_id)
    assert Basis.ASSUMED in inventory(model).bases
    assert any(template.assumed for template in model.templates)
    assert model.assumptions


def test_the_indexer_of_k31_adds_five_tensors_to_each_full_attention_layer() -> None:
    k3 = {t.name for t in load_model(STORE, "kimi-k3").templates}
    added = [t for t in load_model(STORE, "kimi-k3.1-pro").templates if t.name not in k3]
    assert sorted(t.name.partition("indexer.")[2] for t in added) == [
        "k_norm.bias",
        "k_norm.weight",
        "weights_proj.weight",
        "wk.weight",
        "wq_b.weight",
    ]
    assert {t.layers for t in added} == {(*range(3, 92, 4), 92)}


@st.composite
def small_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Kimi K3 with few layers and experts, in any mixture of layer kinds."""
    config = config_file("kimi-k3")
    text = config["text_config"]
    full = draw(st.lists(st.booleans(), min_size=1, max_size=6).filter(any))
    text["num_hidden_layers"] = len(full)
    text["linear_attn_config"]["full_attn_layers"] = [i + 1 for i, f in enumerate(full) if f]
    text["linear_attn_config"]["kda_layers"] = [i + 1 for i, f in enumerate(full) if not f]
    text["first_k_dense_replace"] = draw(st.integers(0, len(full)))
    text["num_experts"] = draw(st.integers(1, 5))
    text["num_experts_per_token"] = 1
    text["attn_res_block_size"] = draw(st.integers(0, len(full)))
    return config


@given(small_configs())
@settings(max_examples=40, deadline=None)
def test_every_tensor_has_one_name_and_is_counted_once(config: dict[str, Any]) -> None:
    model = model_of(config)
    names = Counter(name for template in model.templates for name in template.names())
    assert set(names.values()) == {1}
    assert sum(names.values()) == inventory(model).num_tensors


@given(small_configs())
@settings(max_examples=20, deadline=None)
def test_totals_are_the_sums_over_the_groups(config: dict[str, Any]) -> None:
    found = inventory(model_of(config))
    assert found.total_bytes == sum(g.num_bytes for g in found.groups)
    assert found.total_params == sum(g.params for g in found.groups)
    assert found.active_params <= found.total_params
