"""A fit finds the parameters that measurements come from; without any it keeps its priors.

Measurements are the model's own predictions under parameters that the fit does not know.
"""

from dataclasses import replace
from random import Random

import pytest

from k31ctl.core.figure import Basis
from k31ctl.core.fit import fitted, free_names
from k31ctl.core.measurement import Measurement, Trial, predicted
from k31ctl.core.speed_parameters import Parameter, SpeedParameters, tables
from k31ctl.core.workload import Workload
from tests.core.deployments import speed
from tests.core.speeds import ROOMY, case

# Times these priors is the truth: gaps between kernels, expert reads and matrix rates differ.
TRUTH = {
    ("layer_overhead_s", "default"): 1.25,
    ("expert_read_fraction", "default"): 0.90,
    ("matmul_fraction", "default"): 0.80,
}
QUANTITIES = ("out_tok_s", "tpot_ms", "prefill_tok_s_per_gpu")
LOADS = [
    (128, 4096, 1),
    (1024, 1024, 4),
    (1024, 1024, 16),
    (8192, 64, 8),
    (65_536, 32, 4),
    (1024, 1024, 64),
    (1024, 4096, 256),
]


def entry(parameters: SpeedParameters, name: tuple[str, str]) -> Parameter:
    return tables(parameters)[name[0]][name[1]]


def moved(parameters: SpeedParameters, factors: dict[tuple[str, str], float]) -> SpeedParameters:
    """The parameters at their priors times these factors; only those named are free to move."""
    changed = {
        table: {
            key: replace(
                known,
                value=known.prior * factors.get((table, key), 1.0),
                prior_spread=known.prior_spread if (table, key) in factors else 0.0,
            )
            for key, known in entries.items()
        }
        for table, entries in tables(parameters).items()
    }
    return replace(parameters, **changed)  # type: ignore[arg-type]


TRUE = moved(speed(), TRUTH)
UNFITTED = moved(speed(), dict.fromkeys(TRUTH, 1.0))


def measured(index: int, load: tuple[int, int, int]) -> Trial:
    """One run of its own source, as the true parameters have it."""
    prompt, output, users = load
    run = Measurement(
        id=f"run {index}",
        source=f"source {index}",
        hardware="8x-b300",
        num_nodes=1,
        engine="vllm",
        layout="TP8",
        workload=Workload(
            prompt_tokens=prompt,
            output_tokens=output,
            cached_fraction=0.0,
            concurrency=users,
            rate_per_s=None,
        ),
        measured=dict.fromkeys(QUANTITIES, 1.0),
        note="",
        left_out="",
    )
    trial = Trial(measurement=run, case=case("kimi-k3", "8x-b300", tp=8), most_running=ROOMY)
    return replace(trial, measurement=replace(run, measured=predicted(trial, TRUE)))


TRIALS = [measured(index, load) for index, load in enumerate(LOADS * 6)]


def test_without_measurements_a_fit_is_its_priors() -> None:
    found = fitted(speed(), [])
    for name in free_names(speed()):
        known = entry(found, name)
        assert known.value == known.prior
        assert known.spread == pytest.approx(known.prior_spread)


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_a_fit_finds_the_parameters_that_measurements_come_from(name: tuple[str, str]) -> None:
    found = entry(fitted(UNFITTED, TRIALS), name)
    assert found.value == pytest.approx(entry(TRUE, name).value, rel=0.03)
    assert found.basis is Basis.MEASURED


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_more_measurements_leave_less_doubt(name: tuple[str, str]) -> None:
    spreads = [entry(fitted(UNFITTED, TRIALS[:n]), name).spread for n in (0, 1, 3, 7, 14, 42)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] < 0.5 * spreads[0]


def test_the_order_of_measurements_does_not_matter() -> None:
    shuffled = list(TRIALS)
    Random(3).shuffle(shuffled)
    one, two = fitted(UNFITTED, TRIALS), fitted(UNFITTED, shuffled)
    for name in TRUTH:
        assert entry(two, name).value == pytest.approx(entry(one, name).value, rel=1e-6)
        assert entry(two, name).spread == pytest.approx(entry(one, name).spread, rel=1e-6)


def test_a_fit_does_not_start_from_an_earlier_one() -> None:
    once = fitted(UNFITTED, TRIALS)
    twice = fitted(once, TRIALS)
    for name in TRUTH:
        assert entry(twice, name).value == entry(once, name).value
        assert entry(twice, name).spread == entry(once, name).spread


def test_a_fit_without_measurements_forgets_an_earlier_one() -> None:
    once = fitted(UNFITTED, TRIALS)
    again = fitted(once, [])
    for name in TRUTH:
        assert entry(again, name).value == entry(again, name).prior
        assert entry(again, name).basis is Basis.ASSUMED


def test_what_no_measurement_touches_stays_at_its_prior() -> None:
    # nothing here crosses a network or runs on AMD
    found = fitted(speed(), TRIALS)
    for name in (("network_all_reduce_s", "default"), ("layer_overhead_s", "gfx950")):
        assert entry(found, name).value == pytest.approx(entry(found, name).prior)
        assert entry(found, name).spread == pytest.approx(entry(found, name).prior_spread)


def test_the_spread_of_the_model_is_not_fitted() -> None:
    assert fitted(speed(), TRIALS).model_spread == speed().model_spread


def test_a_long_sweep_counts_as_a_few_runs() -> None:
    # sixteen runs of one source tell no more than four of sources of their own
    own = [replace(t, measurement=replace(t.measurement, id=str(i))) for i, t in enumerate(TRIALS)]
    four = [own[2]] * 4
    four = [
        replace(t, measurement=replace(t.measurement, source=str(i))) for i, t in enumerate(four)
    ]
    sweep = [own[2]] * 16
    name = ("layer_overhead_s", "default")
    assert entry(fitted(UNFITTED, sweep), name).spread == pytest.approx(
        entry(fitted(UNFITTED, four), name).spread, rel=1e-3
    )
