import pytest

from k31ctl.core.asked_pools import AskedPool, AskedPools, asked_pools
from k31ctl.errors import UsageError

TP8 = AskedPool(instances=1, tp=8, pp=None, dp=None, ep=None, dcp=None)


def test_auto_leaves_both_pools_open() -> None:
    assert asked_pools("auto") == AskedPools(prefill=None, decode=None)


def test_a_pool_is_a_count_and_the_sizes_of_one_instance() -> None:
    found = asked_pools("prefill=1xTP8,decode=2xTP8xPP2xDCP8")
    decode = AskedPool(instances=2, tp=8, pp=2, dp=None, ep=None, dcp=8)
    assert found == AskedPools(prefill=TP8, decode=decode)


def test_counts_and_sizes_may_be_left_out() -> None:
    found = asked_pools("decode=tp8")
    assert found.prefill is None
    assert found.decode is not None
    assert (found.decode.instances, found.decode.tp) == (None, 8)
    three = asked_pools("prefill=3").prefill
    assert three is not None
    assert (three.instances, three.tp) == (3, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "prefill",
        "prefill=",
        "prefill=0xTP8",
        "prefill=TP8xTP4",
        "prefill=1xTP0",
        "prefill=99999xTP8",
        "router=1xTP8",
        "prefill=1xTP8,prefill=1xTP8",
        "prefill=TP8x2",
    ],
)
def test_what_is_no_pool_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        asked_pools(text)
    assert "prefill=1xTP8,decode=2xTP8xDCP8" in refused.value.remedy
