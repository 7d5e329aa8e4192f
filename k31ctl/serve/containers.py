"""What a container of a server needs, whatever starts it: places, caches, devices, probes."""

from typing import Final

from k31ctl.errors import UsageError
from k31ctl.serve.rollout import Rollout, Server
from k31ctl.values import frozen

MODEL_FOLDER: Final = "/model"
HUB_FOLDER: Final = "/hub"
CACHE_FOLDER: Final = "/cache"
_CACHES: Final = {
    "vllm": ("VLLM_CACHE_ROOT",),
    "sglang": ("SGLANG_CACHE_DIR",),
    "tokenspeed": (),
}
_COMMON_CACHES: Final = ("TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE", "CUDA_CACHE_PATH")
PROBE_PERIOD_S: Final = 10
_LEAST_START_S: Final = 7200
_MARGIN: Final = 2


@frozen
class Probe:
    """How long a start may take, and how often it is asked about."""

    path: str
    port: int
    period_s: int
    start_s: int

    @property
    def start_failures(self) -> int:
        """Failed probes that a start is allowed."""
        return self.start_s // self.period_s


def probe(server: Server) -> Probe:
    """Twice the longest start that is expected, and at least two hours, in whole minutes."""
    longest = max(_LEAST_START_S, _MARGIN * server.start_high_s)
    return Probe(
        path=server.health,
        port=server.port,
        period_s=PROBE_PERIOD_S,
        start_s=-(-int(longest) // 60) * 60,
    )


def image_of(rollout: Rollout) -> str:
    """The image, or UsageError where none is known for this version."""
    if rollout.image is None:
        raise UsageError(
            f"no image of {rollout.engine} {rollout.version} is known",
            where="--image",
            remedy="build one and name it with --image",
        )
    return rollout.image


def model_in_container(rollout: Rollout) -> str:
    """The model as the engine is told it inside a container."""
    return rollout.weights.repository if rollout.weights.folder is None else MODEL_FOLDER


def container_variables(rollout: Rollout, server: Server) -> dict[str, str]:
    """Variables that say where caches are: compiled kernels outlive a restart."""
    names = [*_CACHES.get(rollout.engine, ()), *_COMMON_CACHES]
    taken = {variable.name for variable in server.variables}
    found = {name: f"{CACHE_FOLDER}/{name.lower()}" for name in names if name not in taken}
    if rollout.weights.folder is None:
        found["HF_HOME"] = HUB_FOLDER
    return dict(sorted(found.items()))
