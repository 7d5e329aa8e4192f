from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from k31ctl.catalog import Store, default_folders, load_nodes
from k31ctl.errors import InputError
from k31ctl.host import local_node

NODES = load_nodes(Store(default_folders()))
H200 = ("NVIDIA H200", 143_771 * 2**20)


class NvmlError(Exception):
    """What the far side raises."""


@dataclass
class FakeNvml:
    """The far side: a driver that lists these GPUs, by name and memory."""

    gpus: list[tuple[str | bytes, int]]
    fails_at: str = ""
    is_open: bool = False
    NVMLError: type[Exception] = field(default=NvmlError)

    def nvmlInit(self) -> None:  # noqa: N802
        self._step("init")
        self.is_open = True

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int, /) -> int:  # noqa: N802
        self._step("handle")
        return index

    def nvmlDeviceGetName(self, handle: int, /) -> str | bytes:  # noqa: N802
        return self.gpus[handle][0]

    def nvmlDeviceGetMemoryInfo(self, handle: int, /) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=self.gpus[handle][1])

    def _step(self, name: str) -> None:
        if name == self.fails_at:
            raise NvmlError("Driver Not Loaded")


@pytest.mark.parametrize(("count", "domain"), [(8, 8), (2, 2), (1, 1)])
def test_this_machine_is_its_profile_with_its_own_count(count: int, domain: int) -> None:
    nvml = FakeNvml([H200] * count)
    found = local_node(NODES, host_memory_bytes=5, nvml=nvml)
    assert (found.id, found.num_gpus, found.scale_up_domain_gpus) == ("this", count, domain)
    assert (found.scale_up is None) == (count == 1)
    assert (found.gpu.memory_bytes, found.host_memory_bytes) == (H200[1], 5)
    assert not nvml.is_open


def test_memory_is_what_this_driver_reports_and_not_the_profile() -> None:
    found = local_node(NODES, host_memory_bytes=5, nvml=FakeNvml([(b"NVIDIA H200", H200[1] - 9)]))
    assert found.gpu.memory_bytes == H200[1] - 9


@pytest.mark.parametrize(
    ("gpus", "fails_at", "what"),
    [
        ([H200], "init", "no NVIDIA GPU was found on this machine: Driver Not Loaded"),
        ([], "", "no NVIDIA GPU was found on this machine: the driver lists none"),
        ([H200], "handle", "the NVIDIA driver did not answer: Driver Not Loaded"),
        ([H200, ("NVIDIA B200", H200[1])], "", "not alike: NVIDIA B200, NVIDIA H200"),
        ([H200, ("NVIDIA H200", H200[1] // 2)], "", "the GPUs are not alike: NVIDIA H200"),
        ([("NVIDIA Z9", 1)], "", "no hardware profile has the GPU 'NVIDIA Z9'"),
        ([("NVIDIA H200", H200[1] // 7)], "", "NVIDIA H200 reports 21536402870 bytes"),
    ],
)
def test_a_machine_that_cannot_be_described_is_refused_with_the_way_out(
    gpus: list[tuple[str | bytes, int]], fails_at: str, what: str
) -> None:
    with pytest.raises(InputError) as caught:
        local_node(NODES, host_memory_bytes=5, nvml=FakeNvml(gpus, fails_at))
    assert what in caught.value.what
    assert "--on 8x-b300" in caught.value.remedy
