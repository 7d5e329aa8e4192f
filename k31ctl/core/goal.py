"""What a search is for."""

from enum import StrEnum


class Goal(StrEnum):
    """What a recommendation makes as large, or as small, as it can."""

    THROUGHPUT = "throughput"
    LATENCY = "latency"
    COST = "cost"
    CONTEXT = "context"
