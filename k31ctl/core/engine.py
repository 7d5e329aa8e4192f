"""What a serving engine release reads, refuses and reserves, as far as memory depends on it."""

from dataclasses import field
from enum import StrEnum
from typing import TypeVar

from k31ctl.core.figure import Basis
from k31ctl.core.kv_cache import IndexFormat, KvFormat
from k31ctl.units import Bytes
from k31ctl.values import frozen


class MemoryRule(StrEnum):
    """How an engine turns free memory into room for requests."""

    VLLM_BLOCKS = "vllm_blocks"
    SGLANG_POOLS = "sglang_pools"
    TOKENSPEED_ARENA = "tokenspeed_arena"
    TRTLLM_FRACTION = "trtllm_fraction"
    EMBEDDED = "embedded"


class DataParallel(StrEnum):
    """What ``--dp`` multiplies: whole tensor-parallel groups, or attention inside one group."""

    GROUPS = "groups"
    ATTENTION = "attention"


class StageSplit(StrEnum):
    """Which pipeline stages take the layers that do not divide."""

    SPARE_LAST = "spare-last"
    LAST = "last"
    FULL_FIRST = "full-first"


class ExpertParallel(StrEnum):
    """Which expert-parallel sizes an engine takes."""

    WORLD = "world"
    DIVIDES_TENSOR = "divisor"
    TENSOR_OR_ONE = "tensor-or-one"
    TENSOR = "tensor"
    NONE = "one"


@frozen
class Number:
    """A parameter of the memory model, with why it has this value."""

    value: float
    why: str
    source: str
    basis: Basis


@frozen
class Size:
    """A reservation in bytes, with why it has this value."""

    bytes: Bytes
    why: str
    source: str
    basis: Basis


@frozen
class EngineLayout:
    """The layouts that an engine accepts."""

    pipeline: bool
    data_parallel: DataParallel
    expert_parallel: ExpertParallel
    multi_node: str
    source: str
    stage_split: StageSplit = StageSplit.SPARE_LAST
    expert_sizes: tuple[int, ...] = ()
    decode_context_parallel: bool = True
    decode_context_parallel_with_draft: bool = True
    draft_with_pipeline: bool = True
    shared_experts_sharded_under_ep: bool = True
    dense_replicated_under_attention_dp: bool = False
    index_keys_divided_by_dcp: bool = True


@frozen
class EngineMemory:
    """What an engine reserves on each GPU; tables are keyed by GPU architecture or ``default``."""

    rule: MemoryRule
    fraction: Number
    chunk_tokens: dict[str, int]
    chunk_source: str
    context: dict[str, Size]
    communication: dict[str, Size]
    graphs: dict[str, Size]
    moe_workspace: dict[str, Size]
    vision_encoder: dict[str, Size]
    activation_per_chunk_token: Size
    fraction_with_vision: Number | None = None
    state_ratio: Number | None = None
    page_tokens: int = 64
    expert_width_multiple: dict[str, int] = field(default_factory=dict)
    expert_hidden_multiple: int = 1

    def __post_init__(self) -> None:
        """State what cannot be true of an engine, so that a profile cannot say it."""
        if self.page_tokens < 1 or self.expert_hidden_multiple < 1:
            raise ValueError("page_tokens and expert_hidden_multiple must be at least 1")
        if any(
            size < 1 for size in (*self.chunk_tokens.values(), *self.expert_width_multiple.values())
        ):
            raise ValueError("chunk_tokens and expert_width_multiple must be at least 1")
        for number in (self.fraction, self.fraction_with_vision):
            if number is not None and not 0 < number.value <= 1:
                raise ValueError("a memory fraction must be above 0 and at most 1")


@frozen
class CacheNeed:
    """What a cache type asks of the launch, on these GPUs and for these model architectures."""

    formats: tuple[KvFormat, ...]
    gpus: tuple[str, ...]
    architectures: tuple[str, ...]
    text: str
    source: str

    def holds(self, kv_format: KvFormat, *, gpu: str, architecture: str) -> bool:
        """Whether a deployment is one of those meant."""
        return kv_format in self.formats and gpu in self.gpus and architecture in self.architectures


@frozen
class EngineCache:
    """The cache types of an engine; ``sparse_fp8`` is what ``fp8`` means for sparse attention."""

    formats: tuple[KvFormat, ...]
    default: KvFormat
    index_default: IndexFormat
    sparse_fp8: dict[str, KvFormat]
    state_slots: dict[str, int]
    source: str
    needs: tuple[CacheNeed, ...] = ()

    def __post_init__(self) -> None:
        """State what cannot be true of a cache, so that a profile cannot say it."""
        if set(self.state_slots) != {"prefix", "no_prefix"} or min(self.state_slots.values()) < 1:
            raise ValueError("state_slots must give prefix and no_prefix, each at least 1")


@frozen
class Engine:
    """One release of a serving engine (``development`` where it is a branch, not a release).

    ``logs_capacity`` is false where the engine's own start-up line is not known. ``prefill_first``
    engines let prompts go before decoding; the others carry both in one step. ``staggered`` says
    that a closed loop is to be taken as it goes on, its prompts spread over the steps, and not as
    it begins, with all prompts at once: see ``core.service``. ``one_by_one`` engines launch the
    attention of each sequence, and the token mixers of each prompt, by themselves.
    """

    id: str
    engine: str
    version: str
    name: str
    architectures: tuple[str, ...]
    layout: EngineLayout
    memory: EngineMemory
    cache: EngineCache
    source: str
    checked: str
    released: str = ""
    development: bool = False
    rank: int = 0
    gpu_architectures: tuple[str, ...] = ()
    vendors: tuple[str, ...] = ("nvidia", "amd")
    sparse_excluded_gpus: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    prefill_first: bool = False
    staggered: bool = False
    one_by_one: bool = False
    logs_capacity: bool = True


T = TypeVar("T")


def for_gpu(table: dict[str, T], architecture: str) -> T:
    """The entry of a table for a GPU architecture, else its ``default``."""
    return table[architecture] if architecture in table else table["default"]
