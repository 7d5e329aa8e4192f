from k31ctl.engine.service.generator import Load
from k31ctl.engine.service.metrics import Metrics

LOAD = Load(
    num_running=1, num_waiting=2, num_slots=3, num_cached_tokens=12_345_678, num_cache_tokens=10**9
)


def lines(metrics: Metrics) -> list[str]:
    return metrics.text(LOAD, num_requests=4).splitlines()


def test_numbers_are_whole_however_large() -> None:
    assert "k31ctl:kv_cached_tokens 12345678" in lines(Metrics())


def test_a_counter_is_there_before_it_counts() -> None:
    assert "k31ctl:generation_tokens_total 0" in lines(Metrics())


def test_labels_stand_beside_the_name() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.count("http_requests_total", path="/health", status=200)
    assert 'k31ctl:http_requests_total{path="/health",status="200"} 2' in lines(metrics)


def test_a_bucket_counts_all_that_took_no_longer() -> None:
    metrics = Metrics()
    for seconds in (0.1, 0.2, 1e6):
        metrics.observe("e2e_request_latency_seconds", seconds)
    name = "k31ctl:e2e_request_latency_seconds"
    found = [line.split()[-1] for line in lines(metrics) if line.startswith(name)]
    assert found == [*["0"] * 3, "1", *["2"] * 10, "3", "1000000.300000", "3"]
