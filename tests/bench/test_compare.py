"""Two runs against each other: verdicts, gates, and how often they are wrong."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import exp
from pathlib import Path
from random import Random
from typing import Any

import pytest

from k31ctl.bench.baseline import regressions, require_comparable
from k31ctl.bench.compare import Comparison, Verdict, compare, judged_metrics
from k31ctl.bench.past import FAILED, PastRun, PastStage, read_run
from k31ctl.errors import InputError, UsageError
from tests.bench.runs import finished
from tests.bench.sse_server import answer, running_server

LOAD = {"prompt_tokens": 1024, "output_tokens": 128, "seed": 0}


def stage(name: str, repeat: int, figures: Mapping[str, float]) -> PastStage:
    return PastStage(
        name=name,
        repeat=repeat,
        concurrency=8,
        rate=None,
        requests=100,
        errors=0,
        is_valid=True,
        is_whole=True,
        figures=figures,
    )


def run(*stages: PastStage, where: str = "run", **inputs: Any) -> PastRun:
    return PastRun(
        where=where,
        state="complete",
        inputs=LOAD | inputs,
        files=(),
        server={"model": "mock"},
        made_with={"version": "1"},
        stages=stages,
        whole={},
    )


def runs_of(metric: str, before: list[float], after: list[float]) -> Comparison:
    made = [
        run(*(stage("concurrency 8", n, {metric: value}) for n, value in enumerate(values)))
        for values in (before, after)
    ]
    return compare(*made)


@pytest.mark.parametrize(
    ("metric", "factor", "verdict"),
    [
        ("tpot_s.mean", 1.10, Verdict.WORSE),
        ("tpot_s.mean", 0.90, Verdict.BETTER),
        ("output_tok_s", 1.10, Verdict.BETTER),
        ("output_tok_s", 0.90, Verdict.WORSE),
        ("tpot_s.mean", 1.001, Verdict.NOISE),
    ],
)
def test_a_change_is_for_the_better_or_the_worse(
    metric: str, factor: float, verdict: Verdict
) -> None:
    base = [10.0, 10.05, 9.95, 10.02, 9.98]
    found = runs_of(metric, base, [factor * value for value in base])
    assert found.stages[0].metrics[0].verdict is verdict


def test_a_change_beyond_noise_may_be_too_small_to_matter() -> None:
    base = [10.0, 10.001, 9.999, 10.0, 10.001]
    after = run(*(stage("c", n, {"e2e_s.mean": 1.03 * x}) for n, x in enumerate(base)))
    before = run(*(stage("c", n, {"e2e_s.mean": x}) for n, x in enumerate(base)))
    found = compare(before, after, least=0.05)
    assert found.stages[0].metrics[0].verdict is Verdict.SMALL
    assert regressions(found, most=0.0) == ()


def test_what_is_worse_by_more_than_allowed_fails_and_by_less_does_not() -> None:
    base = [10.0, 10.05, 9.95, 10.02, 9.98]
    found = runs_of("tpot_s.mean", base, [1.08 * value for value in base])
    assert [each.compared.metric for each in regressions(found, most=0.05)] == ["tpot_s.mean"]
    assert regressions(found, most=0.1) == ()


def test_tails_are_told_but_fail_only_where_they_are_named() -> None:
    base = [10.0, 10.05, 9.95, 10.02, 9.98]
    found = runs_of("ttft_s.p99", base, [1.5 * value for value in base])
    assert found.stages[0].metrics[0].verdict is Verdict.WORSE
    assert regressions(found, most=0.05) == ()
    assert len(regressions(found, most=0.05, gated=("ttft_s.p99",))) == 1


def test_more_failed_requests_are_worse() -> None:
    found = runs_of(FAILED, [0.0] * 5, [0.05, 0.06, 0.05, 0.04, 0.05])
    assert found.stages[0].metrics[0].verdict is Verdict.WORSE
    assert len(regressions(found, most=0.5)) == 1


def test_without_repeats_nothing_is_said_and_no_gate_passes() -> None:
    found = runs_of("tpot_s.mean", [10.0], [20.0])
    assert found.stages[0].metrics[0].verdict is Verdict.UNKNOWN
    with pytest.raises(InputError, match="does not tell its noise"):
        regressions(found, most=0.05)


def test_another_load_is_told_and_no_gate_passes() -> None:
    figures = [stage("c", n, {"tpot_s.mean": 1.0}) for n in range(5)]
    found = compare(run(*figures), run(*figures, prompt_tokens=2048, seed=1))
    assert {s.name: s.is_load for s in found.settings} == {"prompt_tokens": True, "seed": False}
    with pytest.raises(InputError, match="different loads: prompt_tokens"):
        regressions(found, most=0.05)


def test_runs_without_a_stage_in_common_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="no stage was measured in both"):
        compare(run(stage("a", 0, {})), run(stage("b", 0, {})))


def test_what_only_one_run_has_and_what_is_not_valid_is_told() -> None:
    spoilt = replace(stage("a", 0, {}), is_valid=False)
    found = compare(run(spoilt, stage("b", 0, {}), where="x"), run(stage("a", 0, {}), where="y"))
    assert found.notes == ("only in x: b", "x: the client did not keep up at a")


def test_a_run_that_could_not_be_compared_is_refused_before_it_begins() -> None:
    before = run(*(stage("concurrency 8", n, {}) for n in range(5)))
    require_comparable(before, LOAD, names=["concurrency 8"] * 2)
    with pytest.raises(InputError, match="output_tokens 128 there, 64 here"):
        require_comparable(before, LOAD | {"output_tokens": 64}, names=["concurrency 8"] * 2)
    with pytest.raises(InputError, match="concurrency 8 there, concurrency 9 here"):
        require_comparable(before, LOAD, names=["concurrency 9"] * 2)
    with pytest.raises(InputError, match="will be measured 1 times"):
        require_comparable(before, LOAD, names=["concurrency 8"])


def test_a_figure_that_does_not_exist_is_a_usage_error() -> None:
    assert judged_metrics(["tpot_s.p90"]) == ("tpot_s.p90",)
    with pytest.raises(UsageError, match="not a figure"):
        judged_metrics(["speed"])


SPREADS = {  # of a repeat's own noise, beside what all its figures share
    "output_tok_s": 0.002,
    "ttft_s.p50": 0.02,
    "ttft_s.p99": 0.08,
    "itl_s.p99": 0.12,
    "tpot_s.mean": 0.002,
    "e2e_s.mean": 0.002,
}


def simulated(random: Random, *, tpot: float) -> PastRun:
    """Five repeats of a service whose noise is 1 %, and whose TPOT is so many times as long."""

    def repeats() -> Iterator[PastStage]:
        for repeat in range(5):
            slow = random.gauss(0, 0.01)
            figures = {}
            for name, own in SPREADS.items():
                share = {"output_tok_s": 1 / tpot, "tpot_s.mean": tpot, "e2e_s.mean": tpot}
                sign = -1 if name == "output_tok_s" else 1
                figures[name] = share.get(name, 1.0) * exp(sign * slow + random.gauss(0, own))
            yield stage("concurrency 8", repeat, figures | {FAILED: 0.0})

    return run(*repeats())


def test_a_gate_rarely_fails_on_the_same_and_rarely_misses_a_tenth() -> None:
    random = Random(20261129)
    same = missed = 0
    for _ in range(100):
        before = simulated(random, tpot=1.0)
        same += bool(regressions(compare(before, simulated(random, tpot=1.0)), most=0.05))
        missed += not regressions(compare(before, simulated(random, tpot=1.1)), most=0.05)
    assert same <= 1
    assert missed <= 1


def test_a_record_and_a_run_that_just_ended_give_the_same_figures(tmp_path: Path) -> None:
    with running_server(answer) as server:
        end = finished(server.url, num_requests=4, folder=tmp_path / "run")
    found = read_run(tmp_path / "run")
    assert found.state == "complete"
    assert found.server["model"] == "mock"
    assert found.stages[0].figures["request_rate"] == end.stages[0].request_rate
    assert end.stages[0].ttft_s
    assert found.stages[0].figures["ttft_s.p99"] == end.stages[0].ttft_s.p99


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "not JSON"),
        ("[]", "not a measurement"),
        ("{}", "its schema is 'None'"),
        ('{"schema": "k31ctl/bench-record/v1"}', "not a whole measurement"),
        (
            '{"schema": "k31ctl/bench-record/v1", "inputs": {}, "server": {}, "stages": [{}]}',
            "not a whole measurement",
        ),
        ('{"schema": "k31ctl/bench/v1", "result": {"sweep": 3}}', "not a whole measurement"),
    ],
)
def test_what_is_no_measurement_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text)
    for named in (path, tmp_path):
        with pytest.raises(InputError, match=words):
            read_run(named)


def test_a_record_without_whole_stages_is_told_as_it_is(tmp_path: Path) -> None:
    document = {
        "schema": "k31ctl/bench-record/v1",
        "inputs": {},
        "server": {},
        "stages": [],
        "state": "running",
    }
    (tmp_path / "run.json").write_text(json.dumps(document))
    assert read_run(tmp_path).state == "running"
