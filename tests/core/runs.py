"""Answers of ``bench --json`` as the speed model itself would have them."""

from collections.abc import Sequence
from math import exp
from random import Random
from typing import Any

from k31ctl.core.deployed import Deployed
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.workload import Workload
from tests.core.observations import seen


def answer(
    where: Deployed, truth: SpeedParameters, loads: Sequence[Workload], *, noise: float
) -> dict[str, Any]:
    """What a calibration reads of an answer; a real one holds more."""
    random, step = Random(0), where.case.step(truth)
    stages = []
    for each in loads:
        found = seen(where, step, each, noise=lambda: exp(random.gauss(0, noise)))
        m, count = found.measured, found.completed
        stages.append(
            {
                "name": found.name,
                "concurrency": found.concurrency,
                "rate": None,
                "requests": count,
                "completed": count,
                "tokens": {
                    "prompt": count * each.prompt_tokens,
                    "cached": None,
                    "output": count * each.output_tokens,
                },
                "ttft_s": {"mean": m["ttft_s"]},
                "tpot_s": {"mean": m["tpot_s"]},
                "e2e_s": {"mean": m["e2e_s"]},
                "itl_token_s": {"p50": m["itl_s"]},
                "output_tok_s": m["output_tok_s"],
                "total_tok_s": m["output_tok_s"],
                "server_metrics": None,
                "client": {"is_valid": True},
            }
        )
    return {
        "schema": "k31ctl/bench/v1",
        "result": {"sweep": stages, "server": {"model": "kimi-k3", "version": "0.5.23"}},
    }
