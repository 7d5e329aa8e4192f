"""What a run measures, and how."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k31ctl.bench.client import Limits
from k31ctl.bench.endpoint import Endpoint
from k31ctl.bench.images import Images
from k31ctl.bench.stage import Sizes, Stage
from k31ctl.catalog.dataset import DatasetRow
from k31ctl.core.slo import Slo
from k31ctl.values import frozen


@frozen
class BenchRequest:
    """What is measured, and how.

    ``lines`` are rows of a data set instead of synthetic prompts; ``num_turns`` above 1 makes
    agents' sessions of them. ``seeks_saturation`` goes on with twice the users or the rate, of
    arrivals with this ``burstiness`` and for ``duration_s``, as long as that gives more; no stage
    begins after ``budget_s``. ``num_warmup`` requests go ahead and are not counted. ``files`` is
    what the load was read from, ``plan`` the document that it is held against.
    """

    endpoint: Endpoint
    environment: Mapping[str, str]
    model: str | None
    is_chat: bool
    stages: tuple[Stage, ...]
    sizes: Sizes
    shared_fraction: float
    lines: tuple[DatasetRow, ...]
    num_turns: int
    think_s: float
    images: Images | None
    num_images: int
    extra: Mapping[str, Any]
    limits: Limits
    most_in_flight: int
    num_warmup: int
    seeks_saturation: bool
    burstiness: float | None
    duration_s: float | None
    budget_s: float
    seed: int
    slo: Slo | None
    folder: Path | None
    files: tuple[Path, ...]
    plan: Mapping[str, Any] | None
    described: Mapping[str, Any]
