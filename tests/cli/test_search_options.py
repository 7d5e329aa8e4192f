"""The options of a search, and the space that they span."""

from dataclasses import replace

import pytest

from k31ctl.api.search_space import CONCURRENCIES, names_in, node_counts, search_space
from k31ctl.core.kv_cache import KvFormat, StateDtype
from k31ctl.core.request import PlanRequest
from k31ctl.core.search_space import SearchSpace
from k31ctl.errors import ProfileError, UsageError
from tests.core.deployments import STORE, asked, model, speed


def space(*systems: str, base: PlanRequest | None = None) -> SearchSpace:
    return search_space(
        STORE,
        model=model("kimi-k3"),
        systems=systems,
        engines=("vllm", "sglang"),
        draft=None,
        max_nodes=2,
        base=base or asked(),
        state_dtypes=(StateDtype.FP32,),
        concurrencies=(),
        speed=speed(),
        prices=None,
    )


@pytest.mark.parametrize(
    ("most", "counts"), [(1, (1,)), (3, (1, 2, 3)), (8, (1, 2, 3, 4, 8)), (10, (1, 2, 3, 4, 8, 10))]
)
def test_node_counts_are_a_few_and_then_powers_of_two(most: int, counts: tuple[int, ...]) -> None:
    assert node_counts(most) == counts


def test_names_come_once_each_in_their_order() -> None:
    assert names_in("b, a,b", default="c", where="--systems") == ("b", "a")
    assert names_in(None, default="c", where="--systems") == ("c",)


@pytest.mark.parametrize("text", ["", "a,,b", ",".join(f"n{i}" for i in range(40))])
def test_a_list_with_holes_or_no_end_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a list of 1 to 32 names"):
        names_in(text or ",", default="8x-b300", where="--systems")


def test_an_unknown_system_is_told_as_everywhere() -> None:
    with pytest.raises(ProfileError):
        space("8x-b301")


def test_all_is_every_profile() -> None:
    assert {s.node.id for s in space("all").systems} >= {"8x-b300", "8x-h100", "gb300-nvl72"}


def test_a_cache_type_that_was_asked_for_is_the_only_one() -> None:
    assert space("8x-b300").kv_dtypes == (KvFormat.BF16, KvFormat.FP8)
    assert space("8x-b300", base=asked(kv_dtype=KvFormat.FP8)).kv_dtypes == (KvFormat.FP8,)


def test_each_context_is_a_load_that_fills_it() -> None:
    found = space("8x-b300", base=asked(contexts=(8192, 131_072)))
    lengths = [w.prompt_tokens + w.output_tokens for w in found.workloads]
    assert lengths == [8192, 131_072]
    assert found.concurrencies == CONCURRENCIES


def test_a_price_that_was_given_counts_for_every_system() -> None:
    base = asked()
    priced = replace(base, cost=replace(base.cost, usd_per_gpu_hour=4.5))
    found = space("8x-b300", "8x-h200", base=priced)
    assert [s.usd_per_gpu_hour for s in found.systems] == [4.5, 4.5]
