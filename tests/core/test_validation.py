"""The packaged parameters against the published measurements of Kimi K3, seen and unseen."""

from dataclasses import replace
from math import log

import pytest

from k31ctl.catalog.measurements import DEFAULT_ID, load_trials, other_tables
from k31ctl.core.estimate import Estimate
from k31ctl.core.fit import _at, _cost, _residuals, _weights, free_names
from k31ctl.core.measurement import Trial, estimated, predicted
from k31ctl.core.speed_parameters import SpeedParameters, tables
from k31ctl.core.validation import UNSCORED, Validation, validation
from tests.core.deployments import STORE, speed

TRIALS, SKIPPED = load_trials(STORE, DEFAULT_ID, speed())
OTHERS = tuple(
    t for name in other_tables(STORE, DEFAULT_ID) for t in load_trials(STORE, name, speed())[0]
)


@pytest.fixture(scope="module")
def seen() -> Validation:
    return validation(TRIALS, OTHERS, speed(), cross=False)


@pytest.fixture(scope="module")
def unseen() -> Validation:
    """Ten fits, each without one source: about half a minute."""
    return validation(TRIALS, OTHERS, speed(), cross=True)


def slower(factor: float) -> SpeedParameters:
    """The packaged parameters with every gap between kernels so many times as long."""
    table = {k: replace(e, value=e.value * factor) for k, e in speed().layer_overhead_s.items()}
    return replace(speed(), layer_overhead_s=table)


def test_the_packaged_parameters_meet_their_targets(seen: Validation) -> None:
    assert seen.seen.count >= 40
    assert seen.seen.mean_error <= 0.12
    assert seen.seen.worst_error <= 0.30
    assert seen.seen.coverage >= 0.90
    assert seen.missed == ()
    assert seen.cross is None


def test_the_measured_orders_of_layouts_come_out(seen: Validation) -> None:
    # on 16 H200 two stages of eight beat sixteen ranks over the network, 57.5 to 39.4 tokens/s
    by_pair = {(o.better, o.other): o for o in seen.orders}
    first = by_pair["h200-pp2-c1", "h200-tp16-c1"]
    assert first.measured_ratio == pytest.approx(57.5 / 39.4)
    assert all(order.right for order in seen.orders)


def test_the_score_is_that_of_its_comparisons(seen: Validation) -> None:
    scored = [c for c in seen.comparisons if c.scored]
    errors = [abs(c.predicted.value / c.measured - 1) for c in scored]
    inside = [c.predicted.low <= c.measured <= c.predicted.high for c in scored]
    assert seen.seen.count == len(errors)
    assert seen.seen.mean_error == pytest.approx(sum(errors) / len(errors))
    assert seen.seen.worst_error == max(errors)
    assert seen.seen.coverage == sum(inside) / len(inside)


def test_what_is_left_out_says_why_and_is_not_scored(seen: Validation) -> None:
    for each in seen.comparisons:
        assert each.scored == (each.quantity not in UNSCORED and not each.measurement.left_out)
    assert all(each.why for each in SKIPPED)


def test_every_row_of_the_table_is_compared_or_said_to_be_skipped(seen: Validation) -> None:
    compared = {c.measurement.id for c in seen.comparisons}
    assert compared == {t.measurement.id for t in TRIALS}
    assert not compared & {each.id for each in SKIPPED}


def test_sources_that_the_fit_has_not_seen_meet_theirs(unseen: Validation) -> None:
    assert unseen.cross is not None
    assert unseen.cross.count == unseen.seen.count
    assert unseen.cross.mean_error <= 0.18
    assert unseen.cross.worst_error <= 0.45
    assert unseen.missed == ()


def test_a_fit_without_the_source_says_something_else(unseen: Validation) -> None:
    scored = [c for c in unseen.comparisons if c.scored]
    assert all(c.cross is not None for c in scored)
    assert any(c.cross != c.predicted for c in scored)


@pytest.mark.parametrize("factor", [0.2, 4.0])
def test_wrong_parameters_miss_and_the_target_is_named(factor: float) -> None:
    missed = validation(TRIALS, OTHERS, slower(factor), cross=False).missed
    assert any(text.startswith("mean error ") and "above 12%" in text for text in missed)


@pytest.mark.parametrize("trial", TRIALS, ids=lambda t: t.measurement.id)
def test_an_interval_holds_its_own_prediction(trial: Trial) -> None:
    values, ranges = predicted(trial, speed()), estimated(trial, speed())
    assert values.keys() == ranges.keys() == trial.measurement.measured.keys()
    for name, said in ranges.items():
        assert isinstance(said, Estimate)
        assert said.low < said.value < said.high
        assert said.value == pytest.approx(values[name])


def test_nothing_measured_is_nothing_missed() -> None:
    empty = validation((), (), speed(), cross=False)
    assert (empty.seen.count, empty.orders, empty.missed) == (0, (), ())


def test_no_packaged_parameter_moved_alone_fits_better() -> None:
    """Also what hid behind a larger term where the fit began."""
    trials = [t for t in (*TRIALS, *OTHERS) if not t.measurement.left_out]
    weights, names = _weights(trials), free_names(speed())
    entries = {name: tables(speed())[name[0]][name[1]] for name in names}
    x = [log(e.value / e.prior) / e.prior_spread for e in entries.values()]

    def cost(x: list[float]) -> float:
        return _cost(_residuals(_at(speed(), entries, names, x), trials, weights), x)

    best = cost(x)
    for i in range(len(names)):
        for step in (-0.05, 0.05):
            assert cost([*x[:i], x[i] + step, *x[i + 1 :]]) > best - 1e-3, names[i]
