"""The published recipes against the releases: what fails is what is written down, nothing else."""

from collections import Counter

import pytest

from k31ctl.catalog.recipes import recipes_for
from k31ctl.core.launch_form import find_call
from k31ctl.core.read_launch import read_launch
from k31ctl.core.recipe import Recipe, Role
from tests.core.catalogs import CATALOGS, ENGINES, STORE

RECIPES = [recipe for engine in ENGINES for recipe in recipes_for(STORE, engine=engine)]
EVERY_RECIPE = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.id)


@EVERY_RECIPE
def test_a_published_recipe_runs_into_its_documented_drift_and_nothing_else(recipe: Recipe) -> None:
    call = find_call(recipe.words)
    assert call is not None
    catalog = CATALOGS[recipe.engine]
    assert recipe.version == catalog.version
    read = read_launch(recipe.words, call, catalog, environment=recipe.environment)
    found = sorted((p.problem, p.subject.partition("=")[0]) for p in read.problems)
    assert found == sorted((drift.problem, drift.subject) for drift in recipe.drift)
    assert read.model == recipe.model


def test_the_drift_is_that_of_the_survey_of_releases() -> None:
    by_subject = Counter(drift.subject for recipe in RECIPES for drift in recipe.drift)
    assert by_subject == {
        "--cuda-graph-max-bs": 2,  # MI350X and MI355X
        "--enable-dp-attention": 6,  # two strategies on 16, 32 and 64 GPUs
        "SGLANG_K3_ATTN_RES_MODE": 4,  # H100
        "SGLANG_MOE_FUSED_GATE_RADIX": 4,
        "VLLM_ROCM_USE_AITER_MOE_SITUV2_A8W4": 2,
        "TOKENSPEED_DFLASH_AUX_STREAM": 1,
        "--enable-cache-report": 1,
        "--no-enable-flashinfer-autotune": 16,
        "--no-enable-prefix-caching": 1,
        "--no-disable-hybrid-kv-cache-manager": 2,
    }


def test_there_are_sixty_six_recipes_each_with_its_own_name() -> None:
    assert Counter(recipe.engine for recipe in RECIPES) == {
        "sglang": 38,
        "vllm": 21,
        "tokenspeed": 7,
    }
    assert len({recipe.id for recipe in RECIPES}) == 66


@EVERY_RECIPE
def test_a_recipe_of_a_whole_server_fills_its_gpus(recipe: Recipe) -> None:
    layout = recipe.layout
    if recipe.role is not Role.UNIFIED or "tp" not in layout:
        return
    data_parallel = layout.get("dp", 1) if recipe.engine == "vllm" else 1
    ranks = layout["tp"] * layout.get("pp", 1) * data_parallel
    assert ranks == recipe.nodes * recipe.gpus_per_node
