"""A published measurement of a whole deployment, and what the model would have said."""

from k31ctl.core.estimate import Estimate
from k31ctl.core.performance import performance
from k31ctl.core.prediction import Case, busy_groups, prefill_tok_s_per_gpu, service_of
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.workload import Workload
from k31ctl.values import frozen

MS = 1e3


@frozen
class Measurement:
    """One published run. ``measured`` is keyed by the names below, in their units.

    out_tok_s, total_tok_s_per_gpu or tok_s_per_gpu (prompts and answers), prefill_tok_s_per_gpu,
    decode_tok_s_per_gpu and tok_s_per_user (while decoding), tpot_ms, step_ms, ttft_ms.
    """

    id: str
    source: str
    hardware: str
    num_nodes: int
    engine: str
    layout: str
    workload: Workload
    measured: dict[str, float]
    note: str
    left_out: str


@frozen
class Trial:
    """A measurement with the case that the model sees and the requests that its cache holds."""

    measurement: Measurement
    case: Case
    most_running: float


def predicted(trial: Trial, parameters: SpeedParameters) -> dict[str, float]:
    """What the model says of every quantity that was measured, in the measurement's units."""
    names = trial.measurement.measured.keys()
    case, load = trial.case, trial.measurement.workload
    assert load.concurrency is not None
    step = case.step(parameters)
    groups, gpus = busy_groups(case, concurrency=load.concurrency), case.layout.world
    found: dict[str, float] = {}
    if "prefill_tok_s_per_gpu" in names:
        found["prefill_tok_s_per_gpu"] = prefill_tok_s_per_gpu(
            case,
            step,
            concurrency=load.concurrency,
            prompt_tokens=load.prompt_tokens,
            past_tokens=0,
        )
    if names - found.keys():
        service = service_of(case, step, load, most_running=trial.most_running)
        rate = groups * service.requests_per_s
        output = rate * load.output_tokens
        user = case.tokens_per_step / service.decode_s
        every = {
            "out_tok_s": output,
            "tok_s_per_gpu": rate * (load.prompt_tokens + load.output_tokens) / gpus,
            "total_tok_s_per_gpu": rate * (load.prompt_tokens + load.output_tokens) / gpus,
            "decode_tok_s_per_gpu": groups * service.running * user / gpus,
            "tok_s_per_user": user,
            "tpot_ms": service.tpot_s * MS,
            "step_ms": service.decode_s * MS,
            "ttft_ms": service.ttft_s * MS,
        }
        found |= {name: every[name] for name in names - found.keys()}
    return found


def estimated(trial: Trial, parameters: SpeedParameters) -> dict[str, Estimate]:
    """What the model says of every quantity that was measured, with its 90 % interval."""
    case, load = trial.case, trial.measurement.workload
    found = performance(
        case, case.step(parameters), parameters, load, most_running=trial.most_running
    )
    like = {
        "out_tok_s": found.output_tok_s,
        "tok_s_per_gpu": found.output_tok_s,
        "total_tok_s_per_gpu": found.output_tok_s,
        "prefill_tok_s_per_gpu": found.prefill_tok_s_per_gpu,
        "decode_tok_s_per_gpu": found.itl_s,
        "tok_s_per_user": found.itl_s,
        "tpot_ms": found.tpot_s,
        "step_ms": found.itl_s,
        "ttft_ms": found.ttft_s,
    }
    said = predicted(trial, parameters)
    return {name: like[name].scaled(said[name] / like[name].value) for name in said}
