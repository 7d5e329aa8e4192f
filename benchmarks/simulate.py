"""Requests that the simulation serves per second, for a few loads and both policies.

Run it with the Python of the environment: ``.venv/bin/python benchmarks/simulate.py``. Each time
is the best of several runs. The cost of a step is a made-up straight line, so that what is timed
is the simulation and not a speed model.
"""

import random
import sys
import time
from argparse import ArgumentParser
from dataclasses import dataclass

from k31ctl.core.arrivals import ClosedLoop, Load, poisson_arrivals, request_sizes
from k31ctl.core.simulate import Batching, KvBudget, Policy, Simulation, simulate
from k31ctl.core.workload import Workload


@dataclass(frozen=True)
class StraightLine:
    """A step that takes longer with every sequence, every token before it and every new one."""

    def step_s(
        self,
        *,
        num_decoding: int,
        context_tokens: float,
        prefill_tokens: int,
        prefill_past_tokens: float,
    ) -> float:
        """Seconds of a step."""
        attended = num_decoding * context_tokens + prefill_tokens * prefill_past_tokens / 64
        return 0.02 + 1e-4 * num_decoding + 2e-8 * attended + 4e-5 * prefill_tokens


def loads(num_requests: int) -> dict[str, Load]:
    """The loads to serve, by name."""
    asked = Workload(
        prompt_tokens=4_000, output_tokens=1_000, cached_fraction=0, concurrency=64, rate_per_s=None
    )
    alike, varied = (
        request_sizes(
            asked, num_requests=num_requests, spread_fraction=spread, random=random.Random(1)
        )
        for spread in (0.0, 0.9)
    )
    return {
        "64 users, all alike": ClosedLoop(sizes=alike, num_users=64, think_s=0),
        "64 users, sizes vary": ClosedLoop(sizes=varied, num_users=64, think_s=0),
        "Poisson, 1 /s, sizes vary": poisson_arrivals(
            varied, rate_per_s=1.0, random=random.Random(2)
        ),
    }


def served(load: Load, *, policy: Policy, tokens: int) -> tuple[float, Simulation]:
    """Seconds that a simulation takes, and what it finds."""
    batching = Batching(
        policy=policy,
        chunk_tokens=8_192,
        budget_per_decode=1,
        max_running=256,
        reserved_output_fraction=0,
        tokens_per_step=1,
    )
    kv = KvBudget(total_units=tokens // 64, page_tokens=64, units_per_page=1, fixed_units=0)
    start = time.perf_counter()
    found = simulate(load, batching=batching, kv=kv, cost=StraightLine())
    return time.perf_counter() - start, found


def main() -> None:
    """Measure and print a table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000, metavar="N")
    parser.add_argument("--runs", type=int, default=3, metavar="N")
    options = parser.parse_args()
    print(  # noqa: T201
        f"{options.requests} requests, best of {options.runs}, Python {sys.version.split()[0]}\n"
        f"{'load':<28}{'policy':<15}{'cache':>8}{'s':>8}{'req/s':>9}{'steps':>9}{'preempted':>11}"
    )
    for name, load in loads(options.requests).items():
        for policy in Policy:
            for cache, tokens in (("roomy", 10_000_000), ("tight", 200_000)):
                runs = [served(load, policy=policy, tokens=tokens) for _ in range(options.runs)]
                seconds, summary = min(s for s, _ in runs), runs[0][1].summary
                print(  # noqa: T201
                    f"{name:<28}{policy:<15}{cache:>8}{seconds:>8.3f}"
                    f"{options.requests / seconds:>9,.0f}{summary.num_steps:>9,}"
                    f"{summary.preemptions:>11,}"
                )


if __name__ == "__main__":
    main()
