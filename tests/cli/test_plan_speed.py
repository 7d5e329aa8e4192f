"""k31ctl plan and its load: what the options take, refuse and show, as a process."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

PLAN = ("plan", "kimi-k3", "--on", "8x-b300")
LOAD = ("--prompt-tokens", "8192", "--output-tokens", "256")


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (("--cached-fraction", "1"), "--cached-fraction"),
        (("--cached-fraction", "-0.1"), "--cached-fraction"),
        (("--cached-fraction", "nan"), "--cached-fraction"),
        (("--accepted-tokens", "0"), "--accepted-tokens"),
        (("--accepted-tokens", "nan"), "--accepted-tokens"),
        (("--rate", "nan"), "--rate"),
        (("--rate", "0"), "--rate"),
        (("--rate", "inf"), "--rate"),
        (("--rate", "1", "--concurrency", "4"), "--rate, --concurrency"),
        (("--slo", "fast"), "--slo"),
        (("--slo", "ttft_p99_s<=-1"), "--slo"),
        (("--slo", "ttft_p99_s<=nan"), "--slo"),
        (("--prompt-tokens", "0"), "--prompt-tokens"),
        (("--output-tokens", "0"), "--output-tokens"),
    ],
)
def test_a_load_that_cannot_be_is_a_usage_error_by_its_option(
    k31ctl: Run, options: tuple[str, ...], where: str
) -> None:
    done = k31ctl(*PLAN, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert f"at: {where}" in done.stderr


@pytest.mark.parametrize("options", [("--concurrency", "0"), ("--seed", "-1")])
def test_a_count_that_cannot_be_is_a_usage_error(k31ctl: Run, options: tuple[str, str]) -> None:
    done = k31ctl(*PLAN, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert options[0] in done.stderr


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ("arrival,prompt,output\n0,1024,64\n", ("--rate", "1"), 2),
        ("arrival,prompt,output\n0,1024,64\n", ("--concurrency", "2"), 2),
        ("arrival,prompt,output\n", (), 3),
        ("", (), 3),
    ],
)
def test_a_trace_stands_alone_and_holds_a_request(
    k31ctl: Run, tmp_path: Path, text: str, options: tuple[str, ...], code: int
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    done = k31ctl(*PLAN, "--trace", str(path), *options)
    assert (done.returncode, done.stdout) == (code, "")
    assert len(done.stderr.splitlines()) == 3


def test_a_trace_is_played_out(k31ctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival,prompt,output\n0,1024,64\n5,1024,64\n")
    done = k31ctl(*PLAN, "--trace", str(path), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result"]["simulation"]["summary"]["num_requests"] == 2


@pytest.mark.parametrize(
    ("gate", "code"),
    [
        ("tpot_s<=1", 0),
        ("tpot_s<=0.0001", 4),
        ("ttft_s<=60", 0),
        ("output_tok_s>=1", 0),
        ("tok_s_per_user>=1e6", 4),
        ("usd_per_m_output_tokens<=1e6", 0),
        ("usd_per_m_output_tokens<=0.000001", 4),
        ("performance.tpot_s<=1", 0),
    ],
)
def test_speed_and_cost_are_gated_by_their_short_names(k31ctl: Run, gate: str, code: int) -> None:
    done = k31ctl(*PLAN, *LOAD, "--concurrency", "4", "--gate", gate)
    assert done.returncode == code, done.stderr


def test_a_gate_on_a_load_that_is_played_out_means_its_performance(k31ctl: Run) -> None:
    done = k31ctl(*PLAN, *LOAD, "--rate", "0.5", "--gate", "output_tok_s>=1")
    assert done.returncode == 0, done.stderr


def test_the_breakdown_shows_every_part_with_its_limit_and_source(k31ctl: Run) -> None:
    shown = k31ctl(*PLAN, *LOAD, "--concurrency", "4", "--breakdown").stdout
    assert "a decode step," in shown
    assert "a prefill chunk of 16,384 tokens" in shown
    for part in ("dense weights", "routed experts", "latent attention", "KDA state", "all-reduce"):
        assert f"    {part} " in shown
    assert "limit ms" in shown


def test_without_the_option_there_is_no_breakdown(k31ctl: Run) -> None:
    assert "a decode step," not in k31ctl(*PLAN, *LOAD, "--concurrency", "4").stdout


@pytest.mark.parametrize(
    "options",
    [
        ("--concurrency", "1", "--breakdown"),
        ("--concurrency", "100000", "--cached-fraction", "0.999"),
        ("--rate", "0.5", "--slo", "ttft_p99_s<=5,tpot_p99_s<=0.05,e2e_mean_s<=30"),
        ("--nodes", "2", "--tp", "8", "--pp", "2", "--breakdown"),
    ],
)
def test_text_is_never_wider_than_a_terminal(k31ctl: Run, options: tuple[str, ...]) -> None:
    done = k31ctl(*PLAN, *LOAD, *options)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    "options",
    [
        ("--concurrency", "16"),
        ("--rate", "0.5", "--seed", "7"),
        ("--concurrency", "16", "--simulate"),
    ],
)
def test_the_same_question_gets_the_same_bytes(k31ctl: Run, options: tuple[str, ...]) -> None:
    one, two = (
        k31ctl(*PLAN, *LOAD, *options, "--json", PYTHONHASHSEED=seed) for seed in ("1", "2")
    )
    assert one.returncode == 0, one.stderr
    assert one.stdout == two.stdout


def test_another_seed_is_another_run(k31ctl: Run) -> None:
    one, two = (
        json.loads(k31ctl(*PLAN, *LOAD, "--rate", "2", "--seed", seed, "--json").stdout)
        for seed in ("1", "2")
    )
    assert one["result"]["performance"]["ttft_s"] != two["result"]["performance"]["ttft_s"]


def test_a_calibration_changes_the_answer(k31ctl: Run, tmp_path: Path) -> None:
    path = tmp_path / "slow.yaml"
    path.write_text(
        "layer_overhead_s: {default: {value: 0.001, spread: 0.1, prior: 0.001, prior_spread: 0.1, "
        "why: slow, source: a guess, basis: assumed}}"
    )
    plain, slow = (
        json.loads(k31ctl(*PLAN, *LOAD, "--concurrency", "1", *more, "--json").stdout)["result"]
        for more in ((), ("--calibration", str(path)))
    )
    # 93 layers at 1 ms each are at least 93 ms, whatever else a step does
    assert slow["performance"]["tpot_s"] > 0.093 > plain["performance"]["tpot_s"]
