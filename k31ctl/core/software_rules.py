"""Checks of what is installed: container runtimes, the engine, and what it needs around it."""

import re
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.host import Host
from k31ctl.core.host_rule import (
    Fault,
    Need,
    Rule,
    Verdict,
    fine,
    found,
    gib,
    known,
    listed,
    skipped,
)

GROUP: Final = "software"
_PACKAGES: Final = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tokenspeed": "tokenspeed",
    "tensorrt-llm": "tensorrt-llm",
}
# The first releases that read Kimi K3; older ones are in no profile.
_FIRST_K3: Final = {"vllm": (0, 27, 1), "sglang": (0, 5, 17), "tokenspeed": (0, 1, 0)}
_K3: Final = "KimiK3ForConditionalGeneration"
_NETWORK_HOMES: Final = ("nfs", "nfs4", "lustre", "beegfs", "cifs", "fuse", "ceph")
_ARM_NCCL: Final = (2, 29, 3)
_STREAMER_BYTES: Final = 32 * 2**30


def runtime(host: Host, need: Need) -> Verdict:
    """A container runtime is here and works, or one runs this."""
    told = known(host.containers)
    names = [f"{name} {version}" for name, version in told.runtimes.items()]
    if told.docker_trouble:
        return found(
            Fault(
                message=f"docker does not answer: {told.docker_trouble}",
                remedy="systemctl start docker, or join the group docker",
                where="docker",
                severity=Severity.INFO if told.inside or len(told.runtimes) > 1 else None,
            )
        )
    if names or told.inside:
        return fine(", ".join(names) or "this runs inside a container", inside=told.inside)
    return found(
        Fault(
            message="no docker, podman or containerd: the engines' images cannot be run",
            remedy="install one, or install the engine in a virtual environment",
            where="this machine",
            severity=Severity.INFO if _installed(host, need) else None,
        ),
        inside=told.inside,
    )


def toolkit(host: Host, need: Need) -> Verdict:
    """Containers can be given NVIDIA's GPUs."""
    told = known(host.containers)
    gpus = host.gpus.gpus if host.gpus else ()
    if told.inside or not told.runtimes or not gpus or gpus[0].vendor != "nvidia":
        return skipped("no container runtime on a host with NVIDIA GPUs to ask")
    ways = [f"toolkit {told.toolkit}"] if told.toolkit else []
    ways += ["docker runtime nvidia"] if "nvidia" in told.docker_runtimes else []
    ways += ["CDI"] if told.cdi else []
    faults = [
        Fault(
            message="no NVIDIA container toolkit: containers get no GPU",
            remedy="install nvidia-container-toolkit, then nvidia-ctk runtime configure "
            "--runtime=docker and restart docker",
            where="container runtime",
        )
    ]
    return found(*(faults if not ways else ()), good=", ".join(ways))


def engine_reads(host: Host, need: Need) -> Verdict:
    """The release that was asked for reads the model."""
    engine, architecture = need.engine, need.model.architecture
    faults = [
        Fault(
            message=f"{engine.name} does not read {architecture}",
            remedy="name another --engine; k31ctl profiles list engines shows them",
            where=f"--engine {engine.engine}@{engine.version}",
        )
    ]
    reads = architecture in engine.architectures
    return found(*(faults if not reads else ()), good=f"{engine.name} reads {architecture}")


def engine_version(host: Host, need: Need) -> Verdict:
    """The installed release of the engine reads the model."""
    package = _PACKAGES.get(need.engine.engine)
    software = known(host.software)
    version = _installed(host, need)
    if package is None or not version:
        return skipped(f"{need.engine.engine} is not installed in {software.interpreter}")
    reads = _reads(need, version)
    faults = [
        Fault(
            message=f"{package} {version} is installed, which does not read "
            f"{need.model.architecture}",
            remedy=f"install {need.engine.name}, or use its image",
            where=software.interpreter,
        )
    ]
    if reads is None and need.engine.version != version:
        note = f"{package} {version} is not known here; {need.engine.name} is what is checked for"
        return fine(note, version=version)
    return found(*(faults if reads is False else ()), good=f"{package} {version}", version=version)


def _installed(host: Host, need: Need) -> str:
    package = _PACKAGES.get(need.engine.engine, "")
    return (host.software.distributions if host.software else {}).get(package, "")


def _reads(need: Need, version: str) -> bool | None:
    """Whether a release reads the model; that of the newest known one that is not newer."""
    exact = need.engine_versions.get(version)
    if exact is not None:
        return exact
    first = _FIRST_K3.get(need.engine.engine) if need.model.architecture == _K3 else None
    if first and _numbers(version) < first:
        return False
    older = [
        (_numbers(known_version), reads)
        for known_version, reads in need.engine_versions.items()
        if _numbers(known_version) and _numbers(known_version) <= _numbers(version)
    ]
    newest = max((numbers for numbers, _ in older), default=())
    if older and newest == _numbers(version)[: len(newest)]:
        return dict(older)[newest]
    newer = [reads for v, reads in need.engine_versions.items() if _numbers(v) > _numbers(version)]
    return False if newer and not older and not any(newer) else None


def _numbers(version: str) -> tuple[int, ...]:
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def vocabulary(host: Host, need: Need) -> Verdict:
    """A bare installation can read the tokenizer's vocabulary."""
    installed = known(host.software).distributions
    if not need.uses_tiktoken or not _installed(host, need):
        return skipped("no engine is installed here that would read it")
    lacking = [name for name in ("tiktoken", "blobfile") if name not in installed]
    faults = [
        Fault(
            message=f"{' and '.join(lacking)} missing: the tokenizer of {need.model.name} cannot "
            "read its vocabulary",
            remedy=f"pip install {' '.join(lacking)}, or use the engine's image",
            where=known(host.software).interpreter,
        )
    ]
    return found(*(faults if lacking else ()), good="tiktoken and blobfile are here")


def nccl(host: Host, need: Need) -> Verdict:
    """On ARM nodes, NCCL is new enough for CUDA graphs over several nodes."""
    system, installed = known(host.system), known(host.software).distributions
    version = installed.get("nvidia-nccl-cu13") or installed.get("nvidia-nccl-cu12") or ""
    if system.machine != "aarch64" or need.num_nodes == 1 or not version:
        return skipped("this is for several ARM nodes (GB200, GB300) with NCCL installed")
    old = _numbers(version) < _ARM_NCCL
    faults = [
        Fault(
            message=f"NCCL {version}: CUDA graphs over several ARM nodes race before 2.29.3",
            remedy="pip install 'nvidia-nccl-cu13>=2.29.3'",
            where=known(host.software).interpreter,
        )
    ]
    return found(*(faults if old else ()), good=f"NCCL {version}")


def streamer(host: Host, need: Need) -> Verdict:
    """Loaders that fill host memory are bounded."""
    installed = known(host.software).distributions
    memory = host.memory
    faults = []
    limit = (host.environment or {}).get("RUNAI_STREAMER_MEMORY_LIMIT", "")
    if "runai-model-streamer" in installed and limit in ("", "-1"):
        faults.append(
            Fault(
                message="the Run:ai streamer takes as much host memory as the weights have",
                remedy=f"export RUNAI_STREAMER_MEMORY_LIMIT={_STREAMER_BYTES}",
                where="RUNAI_STREAMER_MEMORY_LIMIT",
            )
        )
    if "instanttensor" in installed and memory and memory.usable_bytes < need.node_weight_bytes:
        faults.append(
            Fault(
                message=f"InstantTensor stages {gib(need.node_weight_bytes)} without a bound, and "
                f"this host has {gib(memory.usable_bytes)}",
                remedy="load with another --load-format",
                where=known(host.software).interpreter,
            )
        )
    if not faults and not {"runai-model-streamer", "instanttensor"} & set(installed):
        return skipped("neither the Run:ai streamer nor InstantTensor is installed")
    return found(*faults, good="bounded")


def caches(host: Host, need: Need) -> Verdict:
    """Compiled kernels are kept on this machine: ranks of several nodes race in a shared home."""
    kind = known(host.home_filesystem).split(".")[0]
    told = host.environment or {}
    lacking = [n for n in ("TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE") if not told.get(n)]
    shared = kind in _NETWORK_HOMES
    faults = [
        Fault(
            message=f"the home folder is on {kind}, and {listed(lacking)} not set: kernel caches "
            "are shared, and ranks race for them",
            remedy="point both at a folder on a local disk",
            where=told.get("HOME", "HOME"),
        )
    ]
    return found(*(faults if shared and lacking else ()), good=f"home is on {kind or 'a disk'}")


def symmetric_memory(host: Host, need: Need) -> Verdict:
    """NCCL's symmetric memory, which breaks the capture of graphs, is not switched on."""
    value = known(host.environment).get("VLLM_USE_NCCL_SYMM_MEM", "")
    faults = [
        Fault(
            message=f"VLLM_USE_NCCL_SYMM_MEM={value}: NCCL's symmetric memory breaks graph capture",
            remedy="unset VLLM_USE_NCCL_SYMM_MEM",
            where="VLLM_USE_NCCL_SYMM_MEM",
        )
    ]
    return found(*(faults if value not in ("", "0") else ()), good="off")


SOFTWARE_RULES: Final = (
    Rule(
        id="container-runtime",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("containers",),
        source="the engines' installation guides",
        judge=runtime,
        also=("software",),
    ),
    Rule(
        id="container-toolkit",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("containers",),
        source="NVIDIA container toolkit installation guide",
        judge=toolkit,
        also=("gpus",),
    ),
    Rule(
        id="engine-model",
        group=GROUP,
        severity=Severity.ERROR,
        sections=(),
        source="the engine profile",
        judge=engine_reads,
    ),
    Rule(
        id="engine-version",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("software",),
        source="the engine profile; vllm-project/recipes, Kimi-K3: 0.27.1; vllm-ascend#15086",
        judge=engine_version,
    ),
    Rule(
        id="engine-vocabulary",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("software",),
        source="vllm#21750",
        judge=vocabulary,
    ),
    Rule(
        id="engine-nccl",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("system", "software"),
        source="TokenSpeed documentation, GB200 and GB300",
        judge=nccl,
    ),
    Rule(
        id="engine-loader",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("software",),
        source="AI-Hypercomputer/gpu-recipes#271, local-inference-lab/vllm#382, tokenspeed#418",
        judge=streamer,
        also=("environment", "memory"),
    ),
    Rule(
        id="engine-caches",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("home_filesystem",),
        source="TensorRT-LLM deployment guide for Kimi K3",
        judge=caches,
        also=("environment",),
    ),
    Rule(
        id="engine-symmetric-memory",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("environment",),
        source="Dynamo recipes kimi-k3",
        judge=symmetric_memory,
    ),
)
