"""What a download tells while it runs."""

from k31ctl.errors import K31Error
from k31ctl.fetch.origins import SourceUse
from k31ctl.fetch.part_plan import PartPlan
from k31ctl.fetch.planning import FetchPlan
from k31ctl.values import frozen


@frozen
class Waiting:
    """Another process has the target; this one goes on when it is done."""

    holder: str


@frozen
class Planned:
    """What will be done."""

    plan: FetchPlan | PartPlan


@frozen
class FileStarted:
    """A file is being downloaded, or checked where it lies."""

    path: str
    size_bytes: int
    bytes_reused: int
    is_check: bool


@frozen
class Progress:
    """How far ``what`` is, the whole as a rule; ``path_bytes`` holds the files in flight."""

    bytes_done: int
    bytes_downloaded: int
    bytes_total: int
    rate_bytes_per_s: float
    eta_s: float | None
    path_bytes: tuple[tuple[str, int, int], ...]
    what: str = "all"


@frozen
class FileVerified:
    """A file is whole, and its bytes are what was published where a digest of them is."""

    path: str
    size_bytes: int
    sha256: str
    reused: bool
    is_published: bool = True


@frozen
class Retried:
    """Something is asked for again."""

    path: str
    reason: str
    wait_s: float


@frozen
class Mismatched:
    """Bytes were not what was published, and are not kept."""

    path: str
    reason: str


@frozen
class Paused:
    """Nothing is asked for until the daily window opens."""

    wait_s: float


@frozen
class FileFailed:
    """A file could not be had or not be proven."""

    path: str
    what: str
    remedy: str


@frozen
class Finished:
    """What came of it."""

    num_files: int
    num_verified: int
    bytes_total: int
    bytes_downloaded: int
    bytes_reused: int
    num_retries: int
    num_refetched: int
    seconds: float
    sources: tuple[SourceUse, ...]
    failed: tuple[FileFailed, ...]
    failure: K31Error | None

    @property
    def is_proven(self) -> bool:
        """Whether every file is here and proven."""
        return self.num_verified == self.num_files


Event = (
    Waiting
    | Planned
    | FileStarted
    | Progress
    | FileVerified
    | Retried
    | Mismatched
    | Paused
    | FileFailed
    | Finished
)
