"""Whole-process time and memory of a full search, and how many candidates it computes in a second.

Run it with the Python of the environment: ``.venv/bin/python benchmarks/plan_search.py``.
The search walks six systems, every layout, three contexts and five batches, with cost and fronts;
``--wide`` adds two nodes, a second engine, and every type of cache and state. A child process does
all of it once, from starting Python to printing the answer.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Sequence

from k31ctl.catalog.models import load_model
from k31ctl.catalog.prices import load_price_book
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Store, default_folders
from k31ctl.cli.search_options import KV_DTYPES, search_space
from k31ctl.core.costing import NO_WISHES
from k31ctl.core.goal import Goal
from k31ctl.core.kv_cache import StateDtype
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.request import PlanRequest
from k31ctl.core.search import search
from k31ctl.core.search_space import SearchSpace
from k31ctl.core.searched import searched
from k31ctl.core.workload import AskedWorkload
from k31ctl.report.search_text import search_text

SYSTEMS = ("8x-h200", "8x-b200", "8x-b300", "4x-gb200", "4x-gb300", "8x-mi355x")
CONTEXTS = (8 << 10, 32 << 10, 128 << 10)
BATCHES = (1, 4, 16, 64, 128)
BAR_S, BAR_MB, BAR_PER_S = 1.5, 150, 20_000


def request(*, wide: bool) -> PlanRequest:
    """What every deployment of the search shares."""
    return PlanRequest(
        contexts=CONTEXTS,
        batches=BATCHES,
        layout=AskedLayout(nodes=1, tp=None, pp=None, dp=None, ep=None, dcp=None),
        kv_dtype=None if wide else KV_DTYPES[-1],
        index_dtype=None,
        state_dtype=StateDtype.FP32,
        kv_memory_bytes=None,
        max_model_len=None,
        prefix_caching=True,
        draft_tokens=None,
        replay_ssm=False,
        state_slots=None,
        chunk_tokens=None,
        memory_fraction=None,
        state_ratio=None,
        text_only=False,
        image=None,
        lora_rank=None,
        offload=None,
        resident_experts=None,
        workload=AskedWorkload(
            prompt_tokens=None,
            output_tokens=None,
            cached_fraction=0.0,
            concurrency=None,
            rate_per_s=None,
            accepted_tokens=None,
        ),
        cost=NO_WISHES,
    )


def space(*, wide: bool) -> SearchSpace:
    """The space, from the packaged profiles."""
    store = Store(default_folders())
    model = load_model(store, "kimi-k3.1-pro")
    return search_space(
        store,
        model=model,
        systems=SYSTEMS,
        engines=("vllm", "sglang") if wide else ("vllm",),
        draft=None,
        max_nodes=2,
        base=request(wide=wide),
        state_dtypes=tuple(StateDtype) if wide else (StateDtype.FP32,),
        concurrencies=BATCHES,
        speed=load_speed(store),
        prices=load_price_book(store, about=(*SYSTEMS, model.id)),
    )


def timed(arguments: Sequence[str], *, folder: str) -> tuple[float, int]:
    """Seconds and peak resident bytes of this program as a child."""
    start = time.perf_counter()
    environment = os.environ | {"PYTHONPYCACHEPREFIX": folder}
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", *arguments],
        stdout=subprocess.DEVNULL,
        env=environment,
    )
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"the search ended with {child.returncode}")
    kib = usage.ru_maxrss if sys.platform != "darwin" else usage.ru_maxrss // 1024
    return seconds, kib * 1024


def main() -> None:
    """Measure, and hold the medians against the bars."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, metavar="N")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--child", action="store_true")
    asked = parser.parse_args()
    if asked.child:
        answer = searched(space(wide=asked.wide), goal=Goal.COST)
        print(search_text(answer))  # noqa: T201
        return
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["--wide"] if asked.wide else []
        runs = [timed(arguments, folder=folder) for _ in range(asked.runs + 1)][1:]
    walked = space(wide=asked.wide)
    rates = []
    for _ in range(asked.runs):
        start = time.process_time()
        found = search(walked)
        rates.append(found.num_evaluated / (time.process_time() - start))
    print(  # noqa: T201
        f"median of {asked.runs}, Python {sys.version.split()[0]}: {found.num_options:,} "
        f"deployments under {found.num_evaluated:,} loads\n"
        f"whole process  {statistics.median(s for s, _ in runs):8.3f} s, bar {BAR_S} s\n"
        f"peak memory    {max(size for _, size in runs) / 1e6:8.1f} MB, bar {BAR_MB} MB\n"
        f"candidates     {statistics.median(rates):8,.0f} a second of one core, best "
        f"{max(rates):,.0f}, bar {BAR_PER_S:,}"
    )


if __name__ == "__main__":
    main()
