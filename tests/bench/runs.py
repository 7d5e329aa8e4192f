"""Runs of the bench room against a server of a test."""

import os
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from k31ctl.bench.asked import AskedLoad, bench_request
from k31ctl.bench.events import Event, Finished
from k31ctl.bench.job import Bench
from k31ctl.bench.result import StageResult

ASKED: dict[str, Any] = {
    "concurrency": (1,),
    "rates": (),
    "ramp": None,
    "trace": None,
    "speed": 1.0,
    "burstiness": 1.0,
    "duration_s": None,
    "num_requests": 1,
    "repeat": 1,
    "num_warmup": 0,
    "seeks_saturation": False,
    "budget_s": None,
    "slo": None,
    "model": None,
    "prompt_tokens": 16,
    "output_tokens": 4,
    "spread_fraction": 0.0,
    "shared_fraction": 0.0,
    "dataset": None,
    "num_turns": 1,
    "think_s": 0.0,
    "num_images": 0,
    "image_size": (1024, 1024),
    "is_chat": True,
    "ignore_eos": True,
    "reasoning_effort": None,
    "body": {},
    "seed": 0,
    "timeout_s": 30.0,
    "gap_timeout_s": 30.0,
    "most_in_flight": 1000,
    "key_variable": "K31CTL_API_KEY",
    "is_http2": False,
    "folder": None,
    "plan_path": None,
    "plan": None,
}


def events(url: str, environment: Mapping[str, str] = os.environ, **asked: Any) -> list[Event]:
    """All that a run tells."""
    load = AskedLoad(**(ASKED | {"url": url} | asked))
    request = bench_request(load, environment=environment, random=Random(0))
    return list(Bench(request, clock=time.perf_counter).run())


def finished(url: str, **asked: Any) -> Finished:
    """The end of a run."""
    found = events(url, **asked)[-1]
    assert isinstance(found, Finished)
    return found


def measured(url: str, **asked: Any) -> StageResult:
    """What the only stage of a run came to."""
    (stage,) = finished(url, **asked).stages
    return stage


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
