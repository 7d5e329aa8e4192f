"""Stages of benchmarks as the speed model itself would have them, for given rates or parameters."""

from collections.abc import Callable
from pathlib import Path

from k31ctl.catalog.engines import resolve_engine
from k31ctl.catalog.hardware import load_node
from k31ctl.catalog.models import load_model
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Store, default_folders
from k31ctl.core.asked_deployment import AskedDeployment
from k31ctl.core.deployed import Deployed, deployed
from k31ctl.core.kv_cache import StateDtype
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.observed import E2E, ITL, OUTPUT, TPOT, TTFT, Observed
from k31ctl.core.prediction import service_of
from k31ctl.core.request import Parts
from k31ctl.core.step import StepModel
from k31ctl.core.workload import Workload

STORE = Store(default_folders())


def deployment_of(
    model: str = "kimi-k3",
    *,
    on: str = "8x-b300",
    engine: str = "sglang",
    calibration: Path | None = None,
    nodes: int = 1,
) -> Deployed:
    """A deployment as ``plan`` settles it."""
    loaded = load_model(STORE, model)
    release = resolve_engine(STORE, engine, loaded)
    parts = Parts(
        model=loaded,
        node=load_node(STORE, on),
        engine=release,
        draft=None,
        speed=load_speed(STORE, calibration),
        prices=None,
    )
    return deployed(parts, asked(model, on=on, engine=engine, nodes=nodes))


def asked(model: str, *, on: str, engine: str, nodes: int = 1) -> AskedDeployment:
    return AskedDeployment(
        model=model,
        hardware=on,
        engine=engine,
        draft=None,
        calibration=None,
        profiles=(),
        layout=AskedLayout(nodes=nodes, tp=None, pp=None, dp=None, ep=None, dcp=None),
        kv_dtype=None,
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
        offload=None,
        resident_experts=None,
        accepted_tokens=None,
    )


def load(users: int, prompt: int = 1024, output: int = 256) -> Workload:
    return Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        cached_fraction=0.0,
        concurrency=users,
        rate_per_s=None,
    )


def seen(
    where: Deployed,
    step: StepModel,
    asked_load: Workload,
    *,
    noise: Callable[[], float] = lambda: 1.0,
    queue_s: float | None = None,
    waited_s: float = 0.0,
) -> Observed:
    """What a benchmark of this load would measure if steps took what the model says."""
    service = service_of(where.case, step, asked_load, most_running=where.most_running(asked_load))
    e2e = (service.e2e_s + waited_s) * noise()
    users = asked_load.concurrency
    assert users is not None
    return Observed(
        run="a run",
        name=f"concurrency {users}",
        concurrency=users,
        rate_per_s=None,
        prompt_tokens=asked_load.prompt_tokens,
        output_tokens=asked_load.output_tokens,
        cached_fraction=0.0,
        completed=10 * users,
        measured={
            TTFT: (service.ttft_s + waited_s) * noise(),
            ITL: service.decode_s / where.case.tokens_per_step * noise(),
            TPOT: service.tpot_s * noise(),
            E2E: e2e,
            OUTPUT: users * asked_load.output_tokens / e2e,
        },
        queue_s=queue_s,
        why_not="",
    )
