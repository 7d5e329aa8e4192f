"""What a server and the GPUs say of the moment while they are measured."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from k31ctl.bench.gauges import Sample, read_sample, summed_up
from k31ctl.bench.gpus import gpu_meter, is_this_machine
from tests.bench.runs import finished, measured
from tests.bench.sse_server import Asked, Step, answer, plain, running_server

VLLM = b"""# HELP vllm:num_requests_running Number of requests.
vllm:num_requests_running{engine="0",model_name="a b"} 3.0
vllm:num_requests_running{engine="1",model_name="a b"} 5.0
vllm:num_requests_waiting{engine="0"} 2
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:time_to_first_token_seconds_sum 1
"""
SGLANG = b"sglang:num_running_reqs 4\nsglang:num_queue_reqs 0\nsglang:token_usage 0.5\n"


def late(asked: Asked) -> Iterator[Step]:
    yield 0.3
    yield from answer(asked)


@pytest.mark.parametrize(
    ("body", "expected"), [(VLLM, (8.0, 2.0, 0.75)), (SGLANG, (4.0, 0.0, 0.5))]
)
def test_gauges_are_read_under_the_names_of_each_engine(
    body: bytes, expected: tuple[float, float, float]
) -> None:
    found = read_sample(body, at_s=1.5)
    assert found == Sample(
        at_s=1.5, running=expected[0], waiting=expected[1], cache_fraction=expected[2]
    )


@pytest.mark.parametrize("body", [b"", b"python_gc 1\n", b"vllm:num_requests_running x\n", b"\xff"])
def test_what_is_no_gauge_is_no_sample(body: bytes) -> None:
    assert read_sample(body, at_s=0) is None


def test_samples_are_summed_up_as_worked_by_hand() -> None:
    samples = [
        Sample(at_s=0, running=1, waiting=0, cache_fraction=0.1),
        Sample(at_s=1, running=3, waiting=4, cache_fraction=None),
    ]
    found = summed_up(samples)
    assert found is not None
    assert (found.running_mean, found.waiting_mean, found.waiting_max) == (2, 2, 4)
    assert (found.cache_mean, found.cache_max, found.num_samples) == (0.1, 0.1, 2)
    assert summed_up([]) is None


def test_a_server_is_looked_at_while_it_is_measured() -> None:
    routes = {"/metrics": lambda _: plain(200, VLLM)}
    with running_server(late, routes=routes) as server:
        found = measured(server.url, num_requests=5)
        end = finished(server.url, num_requests=5)
    assert found.gauges is not None
    assert found.gauges.num_samples >= 2
    assert found.gauges.running_mean == 8
    assert len(end.series[0].samples) >= 2


def test_a_server_without_metrics_is_not_looked_at() -> None:
    with running_server(answer) as server:
        found = measured(server.url, num_requests=2)
    assert found.gauges is None
    assert len([asked for asked in server.asked if asked.path == "/metrics"]) == 1


def test_loopback_is_this_machine_and_a_documentation_address_is_not() -> None:
    assert is_this_machine("127.0.0.1")
    assert is_this_machine("::1")
    assert not is_this_machine("192.0.2.1")


def library(folder: Path, *flags: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to build a library of NVML with")
    source, built = Path(__file__).with_name("nvml.c"), folder / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", *flags, "-o", str(built), str(source)], check=True
    )
    return folder


@pytest.mark.parametrize(
    ("flags", "source"), [((), "counters"), (("-DNO_COUNTERS",), "power times time")]
)
def test_gpus_of_this_machine_tell_their_energy(
    tmp_path: Path, flags: tuple[str, ...], source: str
) -> None:
    with running_server(late) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "k31ctl", "bench", server.url, "--requests", "5"),
                *("--output-tokens", "4", "--json"),
            ],
            env=os.environ | {"LD_LIBRARY_PATH": str(library(tmp_path, *flags))},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    result = json.loads(done.stdout)["result"]
    used = result["gpu"]
    assert used["names"] == ["NVIDIA Test", "NVIDIA Test"]
    assert used["energy_source"] == source
    assert used["power_mean_w"] == pytest.approx(400, rel=0.02)
    assert used["utilisation_mean"] == pytest.approx(0.4)  # 20 % and 60 %
    assert used["output_tokens_per_j"] == pytest.approx(20 / used["energy_j"])


@pytest.mark.gpu
def test_the_gpus_of_a_real_machine_are_read() -> None:
    meter = gpu_meter()
    if meter is None:
        pytest.skip("NVML finds no GPU")
    meter.begin(0.0)
    meter.look()
    found = meter.end(1.0, output_tokens=1)
    assert found is not None
    assert found.energy_j >= 0
