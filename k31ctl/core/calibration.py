"""What a calibration holds beside its parameters: of what it is, and how sure each is of others."""

from datetime import date
from typing import Final, Literal

from k31ctl.core.symmetric import cholesky
from k31ctl.values import frozen

SCHEMA: Final = "k31ctl/calibration/v1"
# Written figures are rounded: a covariance may miss being positive definite by so much.
_ROUNDING = 1e-6


@frozen
class Scope:
    """What was measured; parameters hold for its GPU and engine, and the model only counts."""

    gpu: str
    architecture: str
    hardware: tuple[str, ...]
    engine: str
    engine_versions: tuple[str, ...]
    models: tuple[str, ...]
    layouts: tuple[str, ...]


@frozen
class FittedRun:
    """A run that went in; ``loads`` are its stages, those left out say why in ``left_out``."""

    run: str
    command: str
    server: str
    loads: tuple[str, ...]
    left_out: tuple[str, ...]


@frozen
class Calibration:
    """``covariance`` is of the logarithms of ``parameters``, as the rows of its lower triangle.

    ``outliers`` are figures that the fit gave little weight, for being far from all others.
    """

    schema: Literal["k31ctl/calibration/v1"]
    version: str
    date: date
    of: Scope
    runs: tuple[FittedRun, ...]
    num_loads: int
    mean_error: float
    outliers: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    covariance: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        """State what cannot be true of a calibration, so that a file cannot say it."""
        if not self.parameters or len(set(self.parameters)) != len(self.parameters):
            raise ValueError("parameters must be named, and once each")
        if [len(row) for row in self.covariance] != list(range(1, len(self.parameters) + 1)):
            raise ValueError("covariance must be a lower triangle with a row for each parameter")
        try:
            cholesky(self.matrix(slack=_ROUNDING))
        except ValueError:
            raise ValueError("covariance must be positive definite") from None

    def matrix(self, *, slack: float = 0.0) -> list[list[float]]:
        """The whole covariance, with its diagonal raised by ``slack``."""
        size = len(self.parameters)
        rows = self.covariance
        return [
            [rows[max(i, j)][min(i, j)] + slack * (i == j) for j in range(size)]
            for i in range(size)
        ]
