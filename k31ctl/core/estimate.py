"""A modelled number with the range that it is believed to lie in, and what bounds it."""

from enum import StrEnum

from k31ctl.values import frozen


class Bound(StrEnum):
    """The resource that sets a time: what would have to be faster."""

    MEMORY = "memory"
    COMPUTE = "compute"
    NETWORK = "network"
    LAUNCH = "launch"
    QUEUE = "queue"


@frozen
class Estimate:
    """A modelled value; low and high hold 90 % of published measurements of its kind."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> "Estimate":
        """The estimate times a positive, exact factor."""
        return Estimate(value=self.value * factor, low=self.low * factor, high=self.high * factor)

    def inverse(self, numerator: float = 1.0) -> "Estimate":
        """A numerator over the estimate: the low end of a time is the high end of a rate."""
        return Estimate(
            value=numerator / self.value, low=numerator / self.high, high=numerator / self.low
        )
