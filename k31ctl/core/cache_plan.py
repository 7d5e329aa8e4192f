"""The rows and states that a deployment keeps: formats settled, bytes per token and request."""

from k31ctl.core.engine import Engine, MemoryRule, for_gpu
from k31ctl.core.figure import Assumption, Basis
from k31ctl.core.kv_cache import (
    IndexFormat,
    KvFormat,
    StateDtype,
    index_row_bytes,
    latent_row_bytes,
    state_bytes_per_layer,
)
from k31ctl.core.layout import Layout
from k31ctl.core.model import Model
from k31ctl.errors import RefusedError
from k31ctl.values import frozen

SPARSE_ROWS = Assumption(
    id="sparse-rows",
    text="index keys lie beside the latents, and the row format follows the sparse kernel that "
    "the engine picks for this GPU; no start-up log of such a model is public here",
    basis=Basis.ASSUMED,
    source="vLLM docs vllm.models.kimi_k3.common.dsa_cache; --kv-dtype settles it",
)


@frozen
class CacheRows:
    """Bytes of the cache's rows and states, with the formats that they follow from.

    ``latent_bytes`` and ``index_bytes`` are per token and full-attention layer; ``state_bytes`` is
    per request and linear layer on one rank, ``whole_state_bytes`` over all ranks.
    """

    kv_format: KvFormat
    index_format: IndexFormat | None
    state_dtype: StateDtype
    draft_tokens: int
    latent_bytes: int
    index_bytes: int
    state_bytes: int
    whole_state_bytes: int
    assumptions: tuple[Assumption, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one token in one full-attention layer."""
        return self.latent_bytes + self.index_bytes


def cache_rows(
    model: Model,
    *,
    engine: Engine,
    layout: Layout,
    gpu: str,
    kv_dtype: KvFormat | None,
    index_dtype: IndexFormat | None,
    state_dtype: StateDtype,
    draft_tokens: int,
) -> CacheRows:
    """The row formats that the engine would use; raises RefusedError for one it does not take.

    Draft tokens that need states of their own widen the convolution in vLLM; SGLang and
    TokenSpeed keep those states beside the slot instead.
    """
    kv_format = _kv_format(model, engine, gpu, kv_dtype)
    indexer, linear = model.indexer, model.linear
    index_format = (index_dtype or engine.cache.index_default) if indexer else None
    state = whole = 0
    widened = draft_tokens if engine.memory.rule is MemoryRule.VLLM_BLOCKS else 0
    if linear is not None:
        state = state_bytes_per_layer(
            linear,
            attention_tp=layout.attention_tp,
            state_dtype=state_dtype,
            draft_tokens=widened,
        )
        whole = state_bytes_per_layer(
            linear, attention_tp=1, state_dtype=state_dtype, draft_tokens=widened
        )
    return CacheRows(
        kv_format=kv_format,
        index_format=index_format,
        state_dtype=state_dtype,
        draft_tokens=draft_tokens,
        latent_bytes=latent_row_bytes(model.latent, kv_format),
        index_bytes=index_row_bytes(indexer, index_format) if indexer and index_format else 0,
        state_bytes=state,
        whole_state_bytes=whole,
        assumptions=(SPARSE_ROWS,) if indexer else (),
    )


def _kv_format(model: Model, engine: Engine, gpu: str, asked: KvFormat | None) -> KvFormat:
    """The row that the engine stores for what was asked; ``fp8`` depends on the sparse kernel."""
    wanted = asked or engine.cache.default
    if wanted not in engine.cache.formats:
        raise RefusedError(
            f"{engine.name} does not keep its cache in {wanted}",
            where=f"--kv-dtype {wanted}, engine {engine.engine}@{engine.version}",
            remedy=f"it takes {', '.join(engine.cache.formats)}",
            rule="cache-dtype",
            source=engine.cache.source,
        )
    if model.indexer is None and wanted in (KvFormat.FP8_DS_MLA, KvFormat.NVFP4_DS_MLA):
        raise RefusedError(
            f"{wanted} rows exist only for sparse attention, and {model.name} has none",
            where=f"--kv-dtype {wanted}",
            remedy="pass --kv-dtype fp8 or bf16",
            rule="cache-dtype-sparse",
            source=engine.cache.source,
        )
    if wanted is KvFormat.FP8 and model.indexer is not None:
        return for_gpu(engine.cache.sparse_fp8, gpu)
    return wanted
