from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.difference import Comparison, Difference
from k31ctl.core.found_tensors import FoundTensor, TensorColumns, TensorKind
from k31ctl.core.name_patterns import Pattern, patterns, ranges
from k31ctl.core.tensors import Group, Shard, TensorTemplate


def template(name: str, layers: tuple[int, ...] = (), num_experts: int = 0) -> TensorTemplate:
    return TensorTemplate(
        name=name,
        shape=(2, 3),
        dtype="BF16",
        group=Group.ROUTER,
        shard=Shard.REPLICATED,
        params=6,
        layers=layers,
        num_experts=num_experts,
    )


TEMPLATES = (
    template("norm.weight"),
    template("model.layers.{layer}.attn.o_proj.weight", layers=(0, 2)),
    template("model.layers.{layer}.attn.o_proj.weight", layers=(1,)),
    template("model.layers.{layer}.mlp.experts.{expert}.w1.weight", layers=(1, 2), num_experts=3),
    template("tower.blocks.{expert}.norm.weight", num_experts=2),
    template("projector.0.weight"),
    template("projector.2.weight"),
)
NAMES = tuple(name for each in TEMPLATES for name in each.names())


def compared(names: Iterable[str], *, dtype: str = "BF16") -> Difference:
    comparison = Comparison(TEMPLATES, cap=3)
    comparison.add(FoundTensor(name, dtype, (2, 3), 12) for name in names)
    return comparison.result()


def test_the_right_tensors_in_any_order_are_equal() -> None:
    found = compared(reversed(NAMES))
    assert found.is_equal
    assert (found.num_tensors, found.total_params, found.total_bytes) == (14, 14 * 6, 14 * 12)


def test_a_checkpoint_without_anything_lacks_everything() -> None:
    found = compared([])
    assert (found.num_missing, found.missing_bytes) == (14, 14 * 12)
    assert len(found.missing) == 3


def test_one_missing_expert_is_named() -> None:
    gone = "model.layers.2.mlp.experts.1.w1.weight"
    found = compared(name for name in NAMES if name != gone)
    assert found.missing == (gone,)
    assert found.missing_patterns == (Pattern(name=gone, count=1),)


def test_missing_layers_and_experts_are_one_pattern() -> None:
    found = compared(name for name in NAMES if ".experts." not in name)
    assert found.missing_patterns == (
        Pattern(name="model.layers.{1-2}.mlp.experts.{0-2}.w1.weight", count=6),
    )


@pytest.mark.parametrize(
    "name",
    [
        "other.weight",
        "projector.1.weight",
        "model.layers.3.attn.o_proj.weight",
        "model.layers.01.attn.o_proj.weight",
        "model.layers.0.mlp.experts.0.w1.weight",
        "model.layers.1.mlp.experts.3.w1.weight",
        "model.layers.1.mlp.experts.00.w1.weight",
        "model.layers.1.mlp.experts.-1.w1.weight",
        "model.layers.1.mlp.experts.0.w1.weight.x",
        "tower.blocks.2.norm.weight",
        "",
    ],
)
def test_a_name_that_no_template_has_is_unexpected(name: str) -> None:
    found = compared([*NAMES, name])
    assert found.unexpected == (name,)
    assert found.num_missing == found.num_mismatched == 0


def test_another_type_is_a_mismatch_and_not_missing() -> None:
    found = compared(NAMES, dtype="F16")
    assert (found.num_mismatched, found.num_missing) == (14, 0)
    assert found.mismatched[0].expected == "BF16 [2, 3]"
    assert found.mismatched[0].found == "F16 [2, 3]"


def test_a_tensor_in_two_files_is_a_duplicate() -> None:
    found = compared([*NAMES, NAMES[0], "unknown", "unknown"])
    assert found.duplicates == (NAMES[0], "unknown")
    assert not found.is_equal


def test_rotary_buffers_of_old_exports_are_ignored() -> None:
    found = compared([*NAMES, "model.layers.0.self_attn.rotary_emb.inv_freq"])
    assert found.is_equal
    assert found.num_ignored == 1


def test_names_that_differ_in_numbers_are_one_pattern() -> None:
    names = [f"a.{i}.b.{j}.c" for i in (0, 1, 5) for j in (7, 8)]
    assert patterns(names, cap=9) == (Pattern(name="a.{0-1,5}.b.{7-8}.c", count=6),)


def test_ranges_join_neighbours() -> None:
    assert ranges([6, 0, 1, 2, 4, 2]) == "0-2,4,6"


def test_a_number_of_patterns_beyond_the_cap_is_cut_and_the_count_is_not() -> None:
    found = compared(f"stranger{i}.w.{j}" for i in range(100) for j in range(2))
    assert [p.name for p in found.unexpected_patterns] == [
        "stranger0.w.{0-1}",
        "stranger1.w.{0-1}",
        "stranger2.w.{0-1}",
    ]
    assert found.num_unexpected == 200


def test_braces_in_a_name_stay_where_they_are() -> None:
    assert patterns(["a.{}.3", "a.{}.4"], cap=9) == (Pattern(name="a.{}.{3-4}", count=2),)


STRANGERS = (
    "other.weight", "model.layers.1.mlp.experts.3.w1.weight", "model.layers.1.mlp.experts.0",
    "model.layers.1.mlp.experts.00.w1.weight", "model.layers.0.mlp.experts.0.w1.weight",
    "model.layers.0.self_attn.rotary_emb.inv_freq", "model.layers.2.mlp.experts.1.w1.weight.x",
    "model.layers.2.mlp.experts.", ".experts.", "x.experts.0.w1.weight",
)  # fmt: skip
SOUND = TensorKind("BF16", (2, 3), 12)
KINDS = st.sampled_from([SOUND, SOUND, TensorKind("F16", (2, 3), 12)])
EXPERTS = tuple(name for name in NAMES if "mlp.experts" in name)
FILES = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from(NAMES + STRANGERS), st.just(SOUND)), max_size=20),
        st.lists(st.tuples(st.sampled_from(EXPERTS), KINDS), max_size=6),
        KINDS.map(lambda kind: [(name, kind) for name in EXPERTS]),
    ),
    max_size=3,
)


@given(FILES)
def test_columns_say_the_same_as_tensors_one_by_one(
    files: list[list[tuple[str, TensorKind]]],
) -> None:
    by_row, by_column = Comparison(TEMPLATES, cap=3), Comparison(TEMPLATES, cap=3)
    for file in files:
        columns = TensorColumns([name for name, _ in file], [kind for _, kind in file])
        by_row.add(list(columns))
        by_column.add(columns)
    assert by_column.result() == by_row.result()


@given(st.permutations(NAMES), st.lists(st.integers(0, len(NAMES)), max_size=3).map(sorted))
def test_a_sound_checkpoint_is_equal_however_it_is_cut_into_files(
    names: list[str], cuts: list[int]
) -> None:
    comparison = Comparison(TEMPLATES, cap=3)
    for start, end in zip([0, *cuts], [*cuts, len(names)], strict=True):
        comparison.add(TensorColumns(names[start:end], [SOUND] * (end - start)))
    assert comparison.result().is_equal
