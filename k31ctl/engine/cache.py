"""What a model remembers of its sequences: pages of latents and index keys, slots of KDA state.

A sequence gets all the pages it may ever need when it is opened, so that one that has begun can
always be finished.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor

from k31ctl.core.model import LatentAttention, LinearAttention, SparseLatentAttention, TokenMixer
from k31ctl.engine.tensors import Target

PAGE_TOKENS = 64
Rows: TypeAlias = slice | Tensor


def latent_of(mixer: TokenMixer) -> LatentAttention | None:
    """The latent attention of a layer, sparse or not; None for a linear one."""
    match mixer:
        case SparseLatentAttention(latent=latent):
            return latent
        case LatentAttention():
            return mixer
        case _:
            return None


@dataclass(slots=True)
class LayerMemory:
    """One layer's part; rows are tokens of any sequence, slots are sequences."""

    latent_SC: Tensor | None = None
    index_key_SX: Tensor | None = None
    conv_BJE: Tensor | None = None
    state_BHKV: Tensor | None = None

    def num_bytes(self) -> int:
        """Bytes of all of it."""
        parts = (self.latent_SC, self.index_key_SX, self.conv_BJE, self.state_BHKV)
        return sum(part.nbytes for part in parts if part is not None)


class Cache:
    """Memory for a number of sequences and for the tokens of all of them together.

    ``devices`` are those of layers that live elsewhere than on the target's.
    """

    def __init__(
        self,
        mixers: Mapping[int, TokenMixer],
        *,
        num_slots: int,
        num_tokens: int,
        target: Target,
        devices: Mapping[int, torch.device] | None = None,
    ) -> None:
        num_pages = -(-num_tokens // PAGE_TOKENS)
        self._free_pages = list(range(num_pages))
        self._free_slots = list(range(num_slots))
        self._pages: dict[int, list[int]] = {}
        num_rows, at = num_pages * PAGE_TOKENS, devices or {}
        self.layers = {
            layer: _memory(mixer, num_slots, num_rows, target.dtype, at.get(layer, target.device))
            for layer, mixer in mixers.items()
        }

    @property
    def num_free_tokens(self) -> int:
        """Tokens that no open sequence has claimed."""
        return len(self._free_pages) * PAGE_TOKENS

    @property
    def num_free_slots(self) -> int:
        """Sequences that could be opened."""
        return len(self._free_slots)

    def num_bytes(self) -> int:
        """Bytes of all layers."""
        return sum(memory.num_bytes() for memory in self.layers.values())

    def open(self, num_tokens: int) -> int | None:
        """A slot for a sequence of at most so many tokens; None while there is no room."""
        needed = -(-num_tokens // PAGE_TOKENS)
        if not self._free_slots or needed > len(self._free_pages):
            return None
        slot = self._free_slots.pop(0)
        pages = _adjoining(self._free_pages, needed) or self._free_pages[:needed]
        self._pages[slot] = pages
        self._free_pages = sorted(set(self._free_pages) - set(pages))
        for memory in self.layers.values():
            for state in (memory.conv_BJE, memory.state_BHKV):
                if state is not None:
                    state[slot].zero_()
        return slot

    def close(self, slot: int) -> None:
        """Give back what a sequence held."""
        self._free_pages = sorted((*self._free_pages, *self._pages.pop(slot)))
        self._free_slots = sorted((*self._free_slots, slot))

    def rows(self, slot: int, begin: int, end: int, device: torch.device) -> Rows:
        """Where the tokens ``begin`` to ``end`` of a sequence lie: a slice where they adjoin."""
        pages = self._pages[slot]
        if end > len(pages) * PAGE_TOKENS:
            raise ValueError(f"the sequence was opened for {len(pages) * PAGE_TOKENS} tokens")
        if pages[-1] - pages[0] == len(pages) - 1:  # they ascend
            start = pages[0] * PAGE_TOKENS
            return slice(start + begin, start + end)
        position = torch.arange(begin, end, device=device)
        table = torch.tensor(pages, device=device)
        rows: Tensor = table[position // PAGE_TOKENS] * PAGE_TOKENS + position % PAGE_TOKENS
        return rows


def slot_rows(slots: list[int], device: torch.device) -> Rows:
    """Slots as a slice where they adjoin, so that their state is updated in place."""
    if all(after == before + 1 for before, after in pairwise(slots)):
        return slice(slots[0], slots[-1] + 1)
    listed: Tensor = torch.tensor(slots, device=device)
    return listed


def _adjoining(free: list[int], needed: int) -> list[int] | None:
    """The first run of so many pages without a gap."""
    for first in range(len(free) - needed + 1):
        if free[first + needed - 1] - free[first] == needed - 1:
            return free[first : first + needed]
    return None


def _memory(
    mixer: TokenMixer, num_slots: int, num_rows: int, dtype: torch.dtype, device: torch.device
) -> LayerMemory:
    def zeros(shape: Iterable[int], kind: torch.dtype = dtype) -> Tensor:
        return torch.zeros(tuple(shape), dtype=kind, device=device)

    if isinstance(mixer, LinearAttention):
        H, d = mixer.num_heads, mixer.head_dim
        return LayerMemory(
            conv_BJE=zeros((num_slots, mixer.conv_kernel_size - 1, 3 * H * d)),
            state_BHKV=zeros((num_slots, H, d, d), torch.float32),
        )
    latent = latent_of(mixer)
    assert latent is not None
    width = latent.kv_lora_rank + latent.qk_rope_head_dim
    found = LayerMemory(latent_SC=zeros((num_rows, width)))
    if isinstance(mixer, SparseLatentAttention):
        found.index_key_SX = zeros((num_rows, mixer.indexer.head_dim))
    return found
