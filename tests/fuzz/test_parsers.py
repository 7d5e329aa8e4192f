"""Files that nobody wrote by hand: every reader gives an answer or a failure in three lines.

``--hypothesis-profile thorough`` looks further: 20 times as many files for each reader.
"""

from collections.abc import Iterator

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.parsers import table
from tests.fuzz.real_documents import PROFILES

PARSERS = table()
# A whole command takes a tenth of a second and more, a reader alone some milliseconds.
FEWER = 16
DEEP = b"[" * 100_000


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    yield


@pytest.mark.parametrize("name", PARSERS)
def test_any_file_is_read_or_refused(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    parser, folder = PARSERS[name], tmp_path_factory.mktemp("fuzz")
    usual = settings().max_examples

    @settings(
        max_examples=max(2, usual // FEWER) if parser.is_slow else usual,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def holds(data: st.DataObject) -> None:
        content = parser.files(lambda n: data.draw(st.integers(0, n - 1)))
        parser.read(folder, content)

    holds()


def engine_without_a_default() -> bytes:
    raw = yaml.safe_load((PROFILES / "engines" / "vllm-main.yaml").read_text())
    del raw["memory"]["context"]["default"]
    return yaml.safe_dump(raw).encode()


def amd(part: str) -> bytes:
    return f'{{"gpu_data": [{{"gpu": 0, {part}}}]}}'.encode()


def nvml(part: str) -> bytes:
    return f'{{"driver": "1", "gpus": [{{"name": "x", "bus_id": "1", {part}}}]}}'.encode()


# What the search has found: each of these once ended in another exception, or took very long.
FOUND = [
    ("engine profile", engine_without_a_default()),
    ("stream", b'data: {"choices": [{"delta": {"tool_calls": [{"function": "f"}]}}]}\n\n'),
    ("stream", b"data: x\n" * 500_000),
    ("series", DEEP),
    ("requests", DEEP + b"\n"),
    ("AMD's tool", amd('"vram": {"size": {"value": 1, "unit": ["MB"]}}')),
    ("AMD's tool", amd(f'"limit": {{"socket_power": {{"value": 1{"0" * 400}}}}}')),
    ("NVML", DEEP),
    ("NVML", nvml('"memory_bytes": Infinity, "used_bytes": 0, "processes": []')),
    ("NVML", nvml('"memory_bytes": 0, "used_bytes": 1e400, "processes": []')),
    ("NVML", nvml('"memory_bytes": 0, "used_bytes": 0, "processes": [[1e400, 0]]')),
    ("NVIDIA's tool", b"Driver Version : 1\nGPU 00:01:00.0\n    a" + b" " * 20_000 + b"b\n"),
]


@pytest.mark.parametrize(("name", "content"), FOUND, ids=[name for name, _ in FOUND])
def test_what_was_once_found_stays_mended(
    name: str, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    PARSERS[name].read(tmp_path_factory.mktemp("found"), content)
