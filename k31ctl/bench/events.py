"""What a measurement tells while it runs."""

from k31ctl.bench.result import StageResult
from k31ctl.bench.series import StageSeries
from k31ctl.values import frozen


@frozen
class Server:
    """What the endpoint says of itself."""

    url: str
    model: str
    models: tuple[str, ...]
    max_model_len: int | None
    version: str | None
    software: str | None


@frozen
class Checked:
    """The endpoint answers; ``tokens_from`` says how lengths of prompts are known."""

    server: Server
    tokens_from: str
    notes: tuple[str, ...]


@frozen
class StageStarted:
    """A stage begins; ``num_stages`` is None where it is not yet known how many there will be."""

    name: str
    number: int
    num_stages: int | None


@frozen
class Progress:
    """How far a stage is; ``fraction`` is None where its end is not known."""

    name: str
    elapsed_s: float
    fraction: float | None
    completed: int
    errors: int
    in_flight: int
    tok_s: float


@frozen
class StageFinished:
    """What a stage came to."""

    result: StageResult
    series: StageSeries


@frozen
class Finished:
    """The end; ``is_interrupted`` says that it came early."""

    server: Server
    stages: tuple[StageResult, ...]
    series: tuple[StageSeries, ...]
    tokens_from: str
    notes: tuple[str, ...]
    is_interrupted: bool
    record: str | None


Event = Checked | StageStarted | Progress | StageFinished | Finished
