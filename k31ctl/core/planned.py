"""What a plan that was written down settles of a launch, and what it counted."""

from k31ctl.core.kv_cache import IndexFormat, KvFormat, StateDtype
from k31ctl.values import frozen


@frozen
class PlannedSettings:
    """What a plan settles beyond sizes and lengths; None leaves it to recipe and engine.

    ``batch`` is the largest number of requests at once that was asked for. ``unwritten`` are
    options of the plan that no launch takes, as a person writes them.
    """

    kv_memory_bytes: int | None = None
    memory_fraction: float | None = None
    chunk_tokens: int | None = None
    state_dtype: StateDtype | None = None
    index_dtype: IndexFormat | None = None
    state_ratio: float | None = None
    no_prefix_caching: bool = False
    replay_ssm: bool = False
    batch: int | None = None
    unwritten: tuple[str, ...] = ()


@frozen
class Counted:
    """What a plan counted: tokens of cache, and the rows that they take."""

    kv_cache_tokens: int
    kv_format: KvFormat
