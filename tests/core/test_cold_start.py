from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.cold_start import given_link
from k31ctl.errors import RefusedError, UsageError
from tests.core.deployments import STORE, model
from tests.core.starts import after_start_s, seconds_of, started

MINUTE = 60
# Case, what is measured, and the measured seconds; sources in docs/cold_start.md.
WHOLE = [
    ("SGLang, 8 x B300, cold files", {}, 11 * MINUTE),
    ("the same, warm", {"storage": "page-cache", "warm_caches": True}, 9.2 * MINUTE),
    (
        "SGLang, 2 x 8 B200, Hyperdisk ML",
        {"node_id": "8x-b200", "nodes": 2, "tp": 16, "storage": "hyperdisk-ml"},
        17 * MINUTE + 3,
    ),
]
H200 = {"node_id": "8x-h200", "engine": "vllm", "nodes": 2}
TRAYS = {"node_id": "4x-gb300", "engine": "tokenspeed", "nodes": 2, "tp": 8}
READS = [
    ("SGLang, 8 x B300, cold", {}, (360, 360)),
    ("the same, warm files", {"storage": "page-cache"}, (140, 140)),
    ("vLLM, 16 x H200, TP8 PP2", {**H200, "tp": 8, "pp": 2}, (98, 114)),
    (
        "vLLM, 16 x H200, TEP16, warm",
        {**H200, "tp": 16, "ep": 16, "storage": "page-cache"},
        (76, 76),
    ),
    ("TokenSpeed, 2 x 4 GB300", {**TRAYS, "storage": "shared-site"}, (869, 1106)),
    (
        "the same with InstantTensor",
        {**TRAYS, "storage": "shared-site", "reader": "instanttensor"},
        (231, 234),
    ),
]


@pytest.mark.parametrize(
    ("case", "measured_s"), [(c, s) for _, c, s in WHOLE], ids=[n for n, *_ in WHOLE]
)
def test_a_measured_start_lies_between_low_and_high(
    case: dict[str, object], measured_s: float
) -> None:
    low, _, high = after_start_s(started(**case))  # type: ignore[arg-type]
    assert low <= measured_s <= high


@pytest.mark.parametrize(
    ("case", "measured_s"), [(c, s) for _, c, s in WHOLE[1:]], ids=[n for n, *_ in WHOLE[1:]]
)
def test_expected_starts_are_within_a_tenth_where_the_caches_are_known(
    case: dict[str, object], measured_s: float
) -> None:
    assert after_start_s(started(**case))[1] == pytest.approx(measured_s, rel=0.1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "measured"), [(c, s) for _, c, s in READS], ids=[n for n, *_ in READS]
)
def test_a_measured_load_lies_between_low_and_high(
    case: dict[str, object], measured: tuple[float, float]
) -> None:
    low, value, high = seconds_of(started(**case), "read weights")  # type: ignore[arg-type]
    assert low - 1 <= measured[0] and measured[1] <= high + 1
    assert 0.9 * measured[0] <= value <= 1.1 * measured[1]


def test_a_checkpoint_comes_over_ten_gigabits_in_its_bytes_over_the_rate() -> None:
    # 1,560,860,324,864 B of tensors / 1.25e9 B/s = 1,248.7 s
    found = started(link=given_link(10e9 / 8))
    assert seconds_of(found, "download")[1] == pytest.approx(1248.7, abs=0.1)
    assert found.download_bytes == 1_560_860_324_864


def test_one_node_reads_every_tensor_once_however_its_ranks_share_them() -> None:
    assert started(tp=8).node_read_bytes == started(tp=8, ep=8).node_read_bytes == 1_560_860_324_864


def test_two_stages_on_two_nodes_read_half_each_and_a_layer_more() -> None:
    whole = started().node_read_bytes
    half = started(nodes=2, tp=8, pp=2).node_read_bytes
    assert 0.5 * whole < half < 0.52 * whole


def test_replicated_tensors_are_read_on_every_node_and_divided_ones_in_shares() -> None:
    wide = started(nodes=2, tp=16).node_read_bytes
    replicated = sum(t.total_bytes for t in model("kimi-k3").templates if t.shard == "replicated")
    assert wide == pytest.approx((1_560_860_324_864 - replicated) / 2 + replicated)


def test_nodes_with_their_own_disks_each_take_a_copy_and_shared_storage_takes_one() -> None:
    assert started(nodes=2, tp=8, pp=2).copies == 2
    assert started(nodes=2, tp=8, pp=2, storage="fsx-lustre").copies == 1


def test_streamed_storage_has_no_download_and_a_bucket_disk_has_a_copy_first() -> None:
    assert seconds_of(started(storage="s3-streaming"), "download") == (0, 0, 0)
    # 1,560,860,324,864 B / (2.15 x 2^30 B/s) = 676.1 s
    copied = seconds_of(started(storage="hyperdisk-ml"), "copy from the bucket")[1]
    assert copied == pytest.approx(676.1, abs=0.1)


def test_kept_kernels_save_the_compilation_alone() -> None:
    cold, warm = started(), started(warm_caches=True)
    assert cold.total_s.value - warm.total_s.value == pytest.approx(seconds_of(cold, "compile")[1])


def test_an_unknown_loader_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(UsageError, match="magic") as refused:
        started(reader="magic")
    assert "instanttensor" in refused.value.remedy


def test_disks_that_are_too_small_are_refused() -> None:
    with pytest.raises(RefusedError) as refused:
        started(disks=None)
    assert refused.value.rule == "storage-room"


@settings(max_examples=15, deadline=None)
@given(slow=st.floats(1e7, 1e11), factor=st.floats(1, 100))
def test_a_faster_link_never_takes_longer(slow: float, factor: float) -> None:
    times = [started(link=given_link(rate)).total_s.value for rate in (slow, slow * factor)]
    assert times[1] <= times[0]


@settings(max_examples=10, deadline=None)
@given(storage=st.sampled_from(STORE.ids("storage")), nodes=st.sampled_from([1, 2, 4]))
def test_low_expected_and_high_are_in_order_in_every_part(storage: str, nodes: int) -> None:
    found = started(storage=storage, nodes=nodes, tp=8, pp=nodes)
    for part in found.parts:
        assert 0 <= part.seconds.low <= part.seconds.value <= part.seconds.high
    assert found.node_read_bytes <= found.download_bytes


DOCS = (Path(__file__).parents[2] / "docs" / "cold_start.md").read_text().splitlines()


@pytest.mark.parametrize(
    ("name", "case"), [(n, c) for n, c, _ in WHOLE], ids=[n for n, *_ in WHOLE]
)
def test_the_page_states_what_the_model_says_of_whole_starts(
    name: str, case: dict[str, object]
) -> None:
    low, value, high = after_start_s(started(**case))  # type: ignore[arg-type]
    (row,) = (line for line in DOCS if line.startswith(f"| {name} | start "))
    assert f"| {value:,.0f} | {low:,.0f} to {high:,.0f} |" in row


@pytest.mark.parametrize(
    ("name", "case"), [(n, c) for n, c, _ in READS], ids=[n for n, *_ in READS]
)
def test_the_page_states_what_the_model_says_of_loads(name: str, case: dict[str, object]) -> None:
    low, value, high = seconds_of(started(**case), "read weights")  # type: ignore[arg-type]
    (row,) = (line for line in DOCS if line.startswith(f"| {name} | load "))
    assert f"| {value:,.0f} | {low:,.0f} to {high:,.0f} |" in row
