"""Sums made once per model are those of the tensors one by one."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.layout import stage_bounds
from k31ctl.core.model import Model
from k31ctl.core.tallies import DIVIDED, MOST_KEPT, once_per_object, tallies
from k31ctl.core.tensors import Group, Place, Shard, TensorTemplate
from tests.core.deployments import model, planned

MODELS = ("kimi-k3.1-pro", "kimi-k3", "kimi-k2.5", "deepseek-v3.2", "kimi-linear-48b")


def layers_on_stage(t: TensorTemplate, first: int, end: int, *, stage: int, last: int) -> int:
    match t.place:
        case Place.FIRST:
            return int(stage == 0)
        case Place.LAST:
            return int(stage == last)
        case Place.LAYER:
            return sum(first <= layer < end for layer in t.layers)


def divided(found: Model, shard: Shard) -> list[TensorTemplate]:
    return [t for t in found.templates if t.shard is shard and t.group is not Group.MTP]


@pytest.mark.parametrize("model_id", MODELS)
@settings(deadline=None, max_examples=20)
@given(pp=st.integers(1, 16), parts=st.sampled_from([1, 2, 3, 6, 8]))
def test_a_stage_holds_the_share_of_each_of_its_tensors(model_id: str, pp: int, parts: int) -> None:
    found = model(model_id)
    layout = replace(planned(model_id, "roomy").layout, pp=pp)
    for stage, (first, end) in enumerate(stage_bounds(found.num_layers, layout)):
        sums = tallies(found).stage_sums(
            first, end, stage=stage, num_stages=pp, ways=(parts,) * len(DIVIDED)
        )
        for shard in DIVIDED:
            expected = sum(
                -(
                    -layers_on_stage(t, first, end, stage=stage, last=pp - 1)
                    * t.tensors_per_layer
                    * t.tensor_bytes
                    // parts
                )
                for t in divided(found, shard)
            )
            assert sums.by_shard[shard] == expected


@pytest.mark.parametrize("model_id", MODELS)
def test_running_counts_are_those_of_the_layers(model_id: str) -> None:
    found = model(model_id)
    counted = tallies(found)
    for first, end in ((0, 1), (1, 7), (0, found.num_layers)):
        full, linear = found.full_layers(first, end), found.linear_layers(first, end)
        assert counted.full_before[end] - counted.full_before[first] == len(full)
        assert counted.linear_before[end] - counted.linear_before[first] == len(linear)


def test_a_model_is_computed_once_and_the_oldest_is_forgotten() -> None:
    asked = []

    @once_per_object
    def name(found: Model) -> str:
        asked.append(found.id)
        return found.id

    first = model("kimi-k3")
    assert (name(first), name(first)) == ("kimi-k3", "kimi-k3")
    assert asked == ["kimi-k3"]
    others = [replace(first, id=f"model-{i}") for i in range(MOST_KEPT)]
    assert [name(other) for other in others] == [other.id for other in others]
    assert name(first) == "kimi-k3"
    assert asked.count("kimi-k3") == 2
