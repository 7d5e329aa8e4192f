"""What sparse attention asks of an engine: its kernels, the rows they read, and index keys.

No release reads Kimi K3.1, so every setting here is unverified: it is what the engine's own code
chooses for the other model with an indexer, or what the documentation of its branch names.
"""

from typing import Final

from k31ctl.core.engine import for_gpu
from k31ctl.core.kv_cache import IndexFormat, KvFormat
from k31ctl.core.rules.context import BLACKWELL
from k31ctl.serve.gather import Gathered
from k31ctl.serve.ledger import Ledger
from k31ctl.serve.rollout import Standing

_ATTENTION: Final = "--attention-config"
_BACKEND: Final = "--attention-backend"
_KV: Final = "--kv-cache-dtype"
_DENSE_ONLY: Final = (
    _ATTENTION,
    _BACKEND,
    "--decode-attention-backend",
    "--prefill-attention-backend",
)
_VLLM: Final = "docs.vllm.ai latest, vllm.models.kimi_k3.nvidia.dsa"
_VLLM_ROWS: Final = (
    "vLLM 0.33.0 v1/attention/backends/mla, flashmla_sparse and flashinfer_mla_sparse"
)
_VLLM_ROCM: Final = "vLLM 0.33.0 v1/attention/backends/mla/rocm_aiter_mla_sparse.py"
_SGLANG: Final = "SGLang 0.5.23 srt/arg_groups/overrides.py, as for DeepSeek-V3.2"


def sparse_settings(
    ledger: Ledger,
    gathered: Gathered,
    asked: KvFormat | None,
    index: IndexFormat | None,
) -> None:
    """Take out what only dense attention has; put the sparse kernels and the rows they read."""
    if gathered.model.indexer is None:
        return
    for flag in _DENSE_ONLY:
        ledger.drop(flag, "a kernel of dense attention; this model's attention is sparse")
    match gathered.engine.engine:
        case "vllm":
            _vllm(ledger, gathered, asked, index or IndexFormat.FP8)
        case "sglang":
            _sglang(ledger, gathered)


def _put(ledger: Ledger, flag: str, value: object, reason: str, source: str) -> None:
    ledger.put(flag, value, reason, source=source, standing=Standing.UNVERIFIED)


def _vllm(ledger: Ledger, gathered: Gathered, asked: KvFormat | None, index: IndexFormat) -> None:
    """FlashMLA reads rows with scales, FlashInfer and the kernels for AMD read plain fp8."""
    if gathered.node.gpu.vendor == "amd":
        _put(ledger, _BACKEND, "ROCM_AITER_MLA_SPARSE", "the sparse kernel for AMD", _VLLM_ROCM)
    elif asked is KvFormat.FP8 and _plain(gathered):
        reason = "the sparse kernel for plain fp8 rows of 576 bytes on this GPU"
        _put(ledger, _BACKEND, "FLASHINFER_MLA_SPARSE", reason, _VLLM_ROWS)
    else:
        if ledger.values.get(_KV) == KvFormat.FP8.value:
            reason = "fp8 rows of sparse attention: 656 bytes with their scales"
            _put(ledger, _KV, KvFormat.FP8_DS_MLA.value, reason, _VLLM)
        _put(ledger, _BACKEND, "FLASHMLA_SPARSE", "the sparse kernel that reads these rows", _VLLM)
    reason = f"index keys in {index}, as the plan counts them"
    _put(ledger, _ATTENTION, {"indexer_kv_dtype": index.value}, reason, _VLLM)


def _plain(gathered: Gathered) -> bool:
    """Whether what serves fp8 on this GPU reads rows without scales."""
    rows = gathered.engine.cache.sparse_fp8
    return for_gpu(rows, gathered.node.gpu.architecture) is KvFormat.FP8


def _sglang(ledger: Ledger, gathered: Gathered) -> None:
    """Kernels by GPU and type of the cache; the type is said, as SGLang advises beside them."""
    gpu = gathered.node.gpu
    if gpu.vendor == "amd":
        _backends(ledger, "triton", "triton", "the sparse kernel for AMD")
        return
    if _KV not in ledger.flags:
        reason = "fp8 rows, which these kernels read; bf16 takes twice the room"
        _put(ledger, _KV, "fp8_e4m3", reason, _SGLANG)
    blackwell = gpu.architecture in BLACKWELL
    if ledger.values[_KV] != "fp8_e4m3":
        decode = "trtllm" if blackwell else "fa3"
        _backends(ledger, "flashmla_sparse", decode, "the sparse kernel for bf16 rows")
    elif blackwell:
        _backends(ledger, "trtllm", "trtllm", "the sparse kernel for plain fp8 rows of 576 bytes")
    else:
        reason = "the sparse kernel for fp8 rows of 656 bytes with their scales"
        _backends(ledger, "flashmla_kv", "flashmla_kv", reason)


def _backends(ledger: Ledger, prefill: str, decode: str, reason: str) -> None:
    _put(ledger, "--dsa-prefill-backend", prefill, reason, _SGLANG)
    _put(ledger, "--dsa-decode-backend", decode, reason, _SGLANG)
