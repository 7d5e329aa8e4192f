"""Pages and slots."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.core.model import LatentAttention, LinearAttention
from k31ctl.engine.cache import PAGE_TOKENS, Cache
from tests.engine.runs import CPU, F32

LATENT = LatentAttention(
    num_heads=2,
    q_lora_rank=None,
    kv_lora_rank=6,
    qk_nope_head_dim=4,
    qk_rope_head_dim=2,
    v_head_dim=4,
    output_gate=True,
)
KDA = LinearAttention(num_heads=2, head_dim=4, conv_kernel_size=4, full_rank_gate=True)


def make(num_slots: int, num_tokens: int) -> Cache:
    return Cache({0: LATENT, 1: KDA}, num_slots=num_slots, num_tokens=num_tokens, target=F32)


def test_bytes_are_rows_of_latents_and_states_of_slots() -> None:
    # 128 rows x (6 + 2) x 4 B; 3 slots x (3 x 24 + 2 x 4 x 4) x 4 B
    assert make(3, 128).num_bytes() == 128 * 8 * 4 + 3 * (72 + 32) * 4


def test_pages_are_taken_in_a_row_where_there_is_one() -> None:
    cache = make(4, 6 * PAGE_TOKENS)
    first, second, third = (cache.open(2 * PAGE_TOKENS) for _ in range(3))
    assert first is not None
    assert third is not None
    cache.close(first)
    cache.close(third)
    apart, slot = cache.open(1), cache.open(3 * PAGE_TOKENS)
    assert (apart, slot, second) == (0, 2, 1)
    rows = cache.rows(2, 0, 3 * PAGE_TOKENS, CPU)
    assert isinstance(rows, torch.Tensor)  # pages 1, 4 and 5
    assert rows[::PAGE_TOKENS].tolist() == [64, 256, 320]
    assert cache.rows(0, 3, 9, CPU) == slice(3, 9)


def test_a_sequence_gets_no_more_than_it_was_opened_for() -> None:
    cache = make(1, 2 * PAGE_TOKENS)
    assert cache.open(PAGE_TOKENS) == 0
    with pytest.raises(ValueError, match="opened for 64 tokens"):
        cache.rows(0, 0, PAGE_TOKENS + 1, CPU)


@given(st.lists(st.integers(1, 300), max_size=30))
def test_no_two_sequences_share_a_row_and_all_comes_back(lengths: list[int]) -> None:
    cache = make(4, 8 * PAGE_TOKENS)
    held: dict[int, list[int]] = {}
    for length in lengths:
        slot = cache.open(length)
        if slot is None:
            assert held or length > 8 * PAGE_TOKENS
            for each in sorted(held)[:2]:
                cache.close(each)
                del held[each]
            continue
        held[slot] = torch.arange(8 * PAGE_TOKENS)[cache.rows(slot, 0, length, CPU)].tolist()
        rows = [row for one in held.values() for row in one]
        assert len(rows) == len(set(rows))
    for slot in held:
        cache.close(slot)
    assert (cache.num_free_slots, cache.num_free_tokens) == (4, 8 * PAGE_TOKENS)
