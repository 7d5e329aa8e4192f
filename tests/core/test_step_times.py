"""The boiled-down step times are those of the step model."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.deployment import deployment
from k31ctl.core.prediction import case_of
from k31ctl.core.step import StepModel
from k31ctl.core.step_times import StepTimes
from tests.core.deployments import asked, parts, speed

DEPLOYMENTS = {
    "sparse": ("kimi-k3.1-pro", "8x-b300", "vllm", None, {}),
    "groups": ("kimi-k3.1-pro", "8x-b300", "vllm", None, {"tp": 1, "dp": 8}),
    "stages": ("kimi-k3.1-pro", "8x-h200", "vllm", None, {"nodes": 2, "tp": 4, "pp": 4}),
    "context": ("kimi-k3", "8x-b300", "vllm", None, {"dcp": 4}),
    "two nodes": ("kimi-k3", "8x-h200", "sglang", None, {"nodes": 2, "tp": 16}),
    "draft": ("kimi-k3", "8x-b300", "vllm", "inferact-k3-dspark", {}),
    "one by one": ("kimi-k3", "8x-b300", "embedded", None, {"pp": 8}),
    "dense attention": ("kimi-k2.5", "8x-b200", "sglang", None, {"tp": 8, "dp": 8, "ep": 8}),
}


def model_of(name: str) -> tuple[StepModel, int]:
    model_id, node_id, engine, draft, sizes = DEPLOYMENTS[name]
    found = parts(model_id, node_id, engine, draft)
    depth = found.draft.draft_tokens if found.draft else 0
    case = case_of(found, deployment(found, asked(**sizes)), draft_tokens=depth)
    return case.step(speed()), 1 + depth


@pytest.mark.parametrize("name", DEPLOYMENTS)
@settings(deadline=None, max_examples=50)
@given(
    sequences=st.floats(1, 4096),
    context=st.floats(1, 1_048_576),
    tokens=st.floats(1, 65_536),
)
def test_they_are_the_times_of_the_step_model(
    name: str, sequences: float, context: float, tokens: float
) -> None:
    model, positions = model_of(name)
    times = StepTimes(model)
    assert times.decode_s(
        sequences=sequences, context_tokens=context, positions=positions
    ) == pytest.approx(
        model.decode_s(sequences=sequences, context_tokens=context, positions=positions), rel=1e-9
    )
    chunk = {"tokens": tokens, "past_tokens": context, "sequences": sequences}
    assert times.prefill_s(**chunk) == pytest.approx(model.prefill_s(**chunk), rel=1e-9)
