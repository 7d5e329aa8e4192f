"""How many bytes of streamed experts are kept, at the released sizes."""

from dataclasses import replace

import pytest

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.engines import resolve_engine
from k31ctl.catalog.models import load_model
from k31ctl.core.embedded import Held, Load, MemoryPlan
from k31ctl.core.expert_budget import (
    Budget,
    expert_budget,
    expert_sizes,
    expert_uses_text,
    has_room,
    with_experts,
)
from k31ctl.core.stages import Place, staged
from k31ctl.errors import RefusedError

STORE = Store(default_folders())
MODEL = load_model(STORE, "kimi-k3")
ENGINE = resolve_engine(STORE, "embedded", MODEL)
GB = 10**9
HELD = Held(
    layers=range(93),
    with_embedding=True,
    with_head=True,
    element_bytes=2,
    packed_experts=True,
    streams_experts=True,
)
# 3 x 3,072 x 3,584 values at 4.25 bits; 16 bits where they are spelled out in bf16.
STORED, SPELLED = 17_547_264, 66_060_288
SIZES = expert_sizes(MODEL, HELD)


def stages(*places: tuple[str, int], held: Held = HELD) -> tuple[MemoryPlan, ...]:
    load = Load(num_requests=1, max_model_len=64, num_tokens=64, chunk_tokens=512)
    named = [Place(device=device, free_bytes=free) for device, free in places]
    return staged(MODEL, ENGINE, held, load, places=named, block=12)


def budget(
    *places: tuple[str, int], host: int = 0, stored: int | None = None, ready: int | None = None
) -> Budget:
    return expert_budget(
        SIZES,
        stages(*places),
        host_free_bytes=host,
        stored_bytes=stored,
        ready_bytes=ready,
    )


def test_an_expert_takes_what_its_six_tensors_take() -> None:
    assert (SIZES.stored_bytes, SIZES.ready_bytes) == (STORED, STORED)
    assert SIZES.count == 92 * 896
    spelled = expert_sizes(MODEL, replace(HELD, packed_experts=False))
    assert (spelled.stored_bytes, spelled.ready_bytes) == (STORED, SPELLED)


def test_without_experts_kimi_k3_is_the_111_gb_that_every_token_reads_and_an_embedding() -> None:
    # 111.1 GB of a step (docs), 2.35 GB of embedding, kv_b twice and routers in float32
    assert stages(("cpu", 1 << 42))[0].weights_bytes == pytest.approx(114e9, rel=0.02)


def test_a_gpu_keeps_ready_what_is_left_but_a_tenth_and_the_host_half_of_its_memory() -> None:
    plan = stages(("cuda:0", 144 * GB))[0]
    found = budget(("cuda:0", 144 * GB), host=200 * GB)
    assert found.host_bytes == 100 * GB
    left = 144 * GB * 9 // 10 - plan.total_bytes - SIZES.making_bytes
    assert found.device_bytes == pytest.approx(left, abs=1)


def test_a_cpu_halves_what_is_left_between_both() -> None:
    found = budget(("cpu", 144 * GB), host=144 * GB)
    assert found.host_bytes == pytest.approx(found.device_bytes, abs=1)
    asked = budget(("cpu", 144 * GB), host=144 * GB, ready=GB)
    assert asked.device_bytes == GB
    assert asked.host_bytes == found.host_bytes + found.device_bytes - GB


@pytest.mark.parametrize("places", [[("cpu", 144 * GB)], [("cpu", 72 * GB)] * 2])
def test_the_plan_with_experts_fits_and_leaves_a_tenth(places: list[tuple[str, int]]) -> None:
    found = with_experts(stages(*places), SIZES, budget(*places, host=144 * GB))
    for stage in found:
        assert stage.total_bytes <= stage.free_bytes * 9 // 10 + 2
    assert found[-1].line_bytes("experts_ready_bytes") > STORED


def test_no_room_for_one_expert_is_refused_with_what_one_takes() -> None:
    assert not has_room(stages(("cpu", 126 * GB)), SIZES)
    with pytest.raises(RefusedError, match="one expert has 17,547,264 bytes"):
        budget(("cpu", 126 * GB), host=126 * GB)
    with pytest.raises(RefusedError, match="there is room for 1,000") as refused:
        budget(("cpu", 144 * GB), stored=1000)
    assert "--experts-stored 17547264" in refused.value.remedy


def test_uses_are_told_as_shares() -> None:
    uses = {"ready": 6, "in host memory": 3, "read": 1, "read ahead": 2}
    assert expert_uses_text(uses) == (
        "experts: 10 uses, 60% ready, 30% in host memory, 10% read; 20% read ahead"
    )
