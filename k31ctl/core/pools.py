"""How many tokens and requests an engine's cache holds, counted by the engine's own rule."""

from typing import Protocol

from k31ctl.values import frozen


@frozen
class Capacity:
    """What one engine instance would log about its cache at start-up.

    ``max_concurrency`` is the engine's own ratio at ``max_model_len``; ``max_requests`` the whole
    requests of that length that can run. ``log`` is the line to look for.
    """

    rule: str
    pool_bytes: int
    kv_cache_tokens: int
    max_concurrency: float
    max_requests: int
    block_tokens: int
    num_blocks: int
    bytes_per_block: int
    blocks_per_request: int
    max_model_len: int
    state_slots: int
    log: str


class Pool(Protocol):
    """A cache that can be asked what fits."""

    @property
    def pool_bytes(self) -> int:
        """Bytes on the tightest rank."""
        ...

    def max_requests(self, context_tokens: int) -> int:
        """Requests of this length that run at once."""
        ...

    def capacity(self, max_model_len: int) -> Capacity:
        """What the engine logs for its longest request."""
        ...


@frozen
class BlockPool:
    """Blocks of one size for latents and states alike: vLLM's hybrid pool, TokenSpeed's arena.

    One block is set aside as the null block; the engine's logged ratio still counts it.

    Formula: blocks(L) = G_full ceil(L / (block dcp)) + G_linear slots;
    tokens logged = int(num_blocks / blocks(max_len) * max_len), in floating point as the engine.
    Source: vLLM 0.33.0 v1/core/kv_cache_planning.py; TokenSpeed 0.1.1 kv_cache/recipes/kimi_k3.py.
    """

    rule: str
    pool_bytes: int
    num_blocks: int
    block_tokens: int
    bytes_per_block: int
    dcp: int
    full_groups: int
    linear_groups: int
    slots: int
    log_form: str

    def blocks_per_request(self, context_tokens: int) -> int:
        """Blocks that a request of this length holds."""
        pages = -(-context_tokens // (self.block_tokens * self.dcp))
        return self.full_groups * pages + self.linear_groups * self.slots

    def max_requests(self, context_tokens: int) -> int:
        """Requests of this length that run at once, without the null block."""
        return max(0, self.num_blocks - 1) // self.blocks_per_request(context_tokens)

    def capacity(self, max_model_len: int) -> Capacity:
        """What the engine logs at start-up for this maximum length."""
        per_request = self.blocks_per_request(max_model_len)
        concurrency = self.num_blocks / per_request
        tokens = int(concurrency * max_model_len)
        return Capacity(
            rule=self.rule,
            pool_bytes=self.pool_bytes,
            kv_cache_tokens=tokens,
            max_concurrency=concurrency,
            max_requests=self.max_requests(max_model_len),
            block_tokens=self.block_tokens,
            num_blocks=self.num_blocks,
            bytes_per_block=self.bytes_per_block,
            blocks_per_request=per_request,
            max_model_len=max_model_len,
            state_slots=self.slots * self.linear_groups,
            log=self.log_form.format(tokens=tokens, blocks=self.num_blocks),
        )


@frozen
class SplitPool:
    """Two pools, latents by token and states by slot: SGLang, TensorRT-LLM.

    Formula: tokens = KV share / bytes per token, in whole pages; requests = slots // per request.
    Source: SGLang 0.5.23 mem_cache/kv_cache_configurator.py.
    """

    rule: str
    pool_bytes: int
    num_tokens: int
    num_slots: int
    slots_per_request: int
    page_tokens: int
    bytes_per_page: int

    def max_requests(self, context_tokens: int) -> int:
        """Requests of this length that run at once: the scarcer of tokens and slots decides."""
        paged = -(-context_tokens // self.page_tokens) * self.page_tokens
        by_tokens = self.num_tokens // paged
        if not self.slots_per_request:
            return by_tokens
        return min(by_tokens, self.num_slots // self.slots_per_request)

    def capacity(self, max_model_len: int) -> Capacity:
        """What the engine logs at start-up."""
        running = self.max_requests(1)
        return Capacity(
            rule=self.rule,
            pool_bytes=self.pool_bytes,
            kv_cache_tokens=self.num_tokens,
            max_concurrency=min(float(running), self.num_tokens / max_model_len),
            max_requests=self.max_requests(max_model_len),
            block_tokens=self.page_tokens,
            num_blocks=self.num_tokens // self.page_tokens,
            bytes_per_block=self.bytes_per_page,
            blocks_per_request=-(-max_model_len // self.page_tokens),
            max_model_len=max_model_len,
            state_slots=self.num_slots,
            log=f"max_total_num_tokens={self.num_tokens}, max_running_requests={running}",
        )


@frozen
class SharedPool:
    """Pages and states drawn from one budget in bytes: the embedded engine.

    Formula: requests(L) = pool // (ceil(L / page) page_bytes + state_bytes).
    """

    rule: str
    pool_bytes: int
    page_tokens: int
    bytes_per_page: int
    state_bytes: int

    def request_bytes(self, context_tokens: int) -> int:
        """Bytes that a request of this length holds on the tightest device."""
        return -(-context_tokens // self.page_tokens) * self.bytes_per_page + self.state_bytes

    def max_requests(self, context_tokens: int) -> int:
        """Requests of this length that run at once."""
        return self.pool_bytes // self.request_bytes(context_tokens)

    def capacity(self, max_model_len: int) -> Capacity:
        """What the engine prints at start-up."""
        room = max(0, self.pool_bytes - self.state_bytes)
        pages = room // self.bytes_per_page if self.bytes_per_page else 0
        tokens = pages * self.page_tokens
        return Capacity(
            rule=self.rule,
            pool_bytes=self.pool_bytes,
            kv_cache_tokens=tokens,
            max_concurrency=self.pool_bytes / self.request_bytes(max_model_len),
            max_requests=self.max_requests(max_model_len),
            block_tokens=self.page_tokens,
            num_blocks=pages,
            bytes_per_block=self.bytes_per_page,
            blocks_per_request=-(-max_model_len // self.page_tokens),
            max_model_len=max_model_len,
            state_slots=1,
            log=f"cache: {tokens:,} tokens for one request",
        )
