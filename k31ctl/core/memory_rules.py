"""Checks of host memory, shared memory and the limits that processes run under."""

from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.host import Host
from k31ctl.core.host_rule import Fault, Need, Rule, Verdict, fine, found, gib, known, skipped

GROUP: Final = "memory and limits"
# Published recipes ask for 700 GiB of host memory on a node of eight GPUs.
RECIPE_BYTES: Final = 700 * 2**30
_ONE_SHARD: Final = "embedded"
_SHM_LEAST_BYTES: Final = 2**30
_SHM_RECIPE_BYTES: Final = 32 * 2**30
_STALE_BYTES: Final = 64 * 2**20
_NOFILE: Final = 65536
_MEMLOCK_BYTES: Final = 64 * 2**30
_STACK_BYTES: Final = 64 * 2**20
_HUGE_SHARE: Final = 0.1


def _least_bytes(need: Need) -> float:
    """What a loader needs of host memory; next to nothing for one that takes shard after shard."""
    if need.engine.engine == _ONE_SHARD:
        return 0.0
    return min(need.node_weight_bytes, RECIPE_BYTES)


def host_memory(host: Host, need: Need) -> Verdict:
    """Host memory is what recipes ask for, or the weights of the node where those are less."""
    memory = known(host.memory)
    if need.engine.engine == _ONE_SHARD:
        return skipped("the embedded engine loads one shard at a time")
    least, have = _least_bytes(need), memory.usable_bytes
    limited = memory.limit_bytes is not None and memory.limit_bytes < memory.total_bytes
    what = "the cgroup allows" if limited else "this host has"
    faults = [
        Fault(
            message=f"{what} {gib(have)} of memory, loading {need.model.name} needs {gib(least)}",
            remedy="raise the container's memory limit"
            if limited
            else "use a larger host, or more nodes so that each loads less",
            where="/proc/meminfo",
        )
    ]
    return found(
        *(faults if have < least else ()),
        good=f"{gib(have)}, {gib(least)} are needed",
        total_bytes=memory.total_bytes,
        usable_bytes=have,
        needed_bytes=int(least),
    )


def host_memory_for_weights(host: Host, need: Need) -> Verdict:
    """All weights of the node fit in host memory: a lazy loader, and a second start, need that."""
    have, weights = known(host.memory).usable_bytes, need.node_weight_bytes
    if have < _least_bytes(need):
        return skipped("see host-memory")
    lazy = need.engine.engine == "tensorrt-llm"
    faults = [
        Fault(
            message=f"{gib(weights)} of weights do not fit in {gib(have)} of host memory: every "
            "start reads the disk" + (", and ranks that load lazily run out" if lazy else ""),
            remedy="count on a cold read at every start, or use a larger host",
            where="/proc/meminfo",
            severity=None if lazy else Severity.WARNING,
        )
    ]
    return found(
        *(faults if have < weights else ()),
        good="the page cache can hold the weights of this node",
        weight_bytes=int(weights),
    )


def host_memory_available(host: Host, need: Need) -> Verdict:
    """What is needed is also free."""
    memory, least = known(host.memory), _least_bytes(need)
    if memory.usable_bytes < least:
        return skipped("see host-memory")
    faults = [
        Fault(
            message=f"{gib(memory.available_bytes)} of host memory are available, "
            f"{gib(least)} are needed",
            remedy="end what else runs here",
            where="/proc/meminfo",
        )
    ]
    return found(
        *(faults if memory.available_bytes < least else ()),
        good=f"{gib(memory.available_bytes)} available",
        available_bytes=memory.available_bytes,
    )


def huge_pages(host: Host, need: Need) -> Verdict:
    """Few pages are set aside, and transparent huge pages are not switched off."""
    memory = known(host.memory)
    faults = []
    if memory.reserved_huge_bytes > _HUGE_SHARE * memory.total_bytes:
        faults.append(
            Fault(
                message=f"{gib(memory.reserved_huge_bytes)} are set aside as huge pages, which "
                "engines do not use",
                remedy="sysctl vm.nr_hugepages=0",
                where="/proc/meminfo",
            )
        )
    if memory.transparent_huge_pages == "never":
        faults.append(
            Fault(
                message="transparent huge pages are off: copies from host memory are slower",
                remedy="echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
                where="/sys/kernel/mm/transparent_hugepage/enabled",
                severity=Severity.INFO,
            )
        )
    return found(*faults, good=f"transparent: {memory.transparent_huge_pages or 'not told'}")


def shm_size(host: Host, need: Need) -> Verdict:
    """``/dev/shm`` is not Docker's 64 MB: NCCL then stops with an unhandled system error."""
    shm = known(host.shm)
    inside = bool(host.containers and host.containers.inside)
    small = shm.size_bytes < _SHM_LEAST_BYTES
    wide = "at least 32 GiB is what recipes give"
    faults = [
        Fault(
            message=f"/dev/shm has {gib(shm.size_bytes)}; {wide}"
            + (", and NCCL stops with 'unhandled system error'" if small else ""),
            remedy="start the container with --ipc=host or --shm-size 32g, a pod with an emptyDir "
            "of medium Memory"
            if inside
            else "mount -o remount,size=32g /dev/shm",
            where="/dev/shm",
            severity=None if small else Severity.WARNING,
        )
    ]
    return found(
        *(faults if shm.size_bytes < _SHM_RECIPE_BYTES else ()),
        good=f"{gib(shm.size_bytes)}, {gib(shm.free_bytes)} free",
        size_bytes=shm.size_bytes,
        free_bytes=shm.free_bytes,
    )


def shm_stale(host: Host, need: Need) -> Verdict:
    """No earlier engine left its shared memory behind."""
    stale = known(host.shm).stale
    noun = "segment" if stale.num_segments == 1 else "segments"
    doubt = "" if stale.all_holders_seen else "; processes of other users could not be asked"
    faults = [
        Fault(
            message=f"{stale.num_segments} {noun} of {gib(stale.total_bytes)} that no process "
            f"has open, such as {stale.example}{doubt}",
            remedy="when no engine runs, delete them: "
            "rm /dev/shm/psm_* /dev/shm/nccl-* /dev/shm/torch_*",
            where="/dev/shm",
            severity=None if stale.total_bytes >= _STALE_BYTES else Severity.INFO,
        )
    ]
    return found(
        *(faults if stale.num_segments else ()),
        good="nothing was left behind",
        num_segments=stale.num_segments,
        total_bytes=stale.total_bytes,
    )


def memlock(host: Host, need: Need) -> Verdict:
    """Memory may be locked: RDMA registers buffers, and loaders pin theirs."""
    limit = known(host.limits).memlock_bytes
    if limit is None or limit >= _MEMLOCK_BYTES:
        return fine("unlimited" if limit is None else gib(limit))
    return found(
        Fault(
            message=f"only {gib(limit)} may be locked; RDMA and pinned buffers need more",
            remedy="ulimit -l unlimited; docker --ulimit memlock=-1; systemd LimitMEMLOCK=infinity",
            where="ulimit -l",
            severity=None if need.num_nodes > 1 else Severity.WARNING,
        ),
        memlock_bytes=limit,
    )


def nofile(host: Host, need: Need) -> Verdict:
    """Enough files may be open."""
    limit = known(host.limits).nofile
    if limit is None or limit >= _NOFILE:
        return fine("unlimited" if limit is None else f"{limit:,}")
    return found(
        Fault(
            message=f"{limit:,} files may be open; recipes ask for {_NOFILE:,}",
            remedy=f"ulimit -n {_NOFILE}; systemd LimitNOFILE={_NOFILE}",
            where="ulimit -n",
        ),
        nofile=limit,
    )


def stack(host: Host, need: Need) -> Verdict:
    """The stack is as large as the engines' container recipes make it."""
    limit = known(host.limits).stack_bytes
    if limit is None or limit >= _STACK_BYTES:
        return fine("unlimited" if limit is None else gib(limit))
    return found(
        Fault(
            message=f"the stack is {gib(limit)}; container recipes give 64 MiB",
            remedy="docker --ulimit stack=67108864",
            where="ulimit -s",
        ),
        good=gib(limit),
        stack_bytes=limit,
    )


_DOCKER: Final = "vLLM and SGLang documentation, docker run"
MEMORY_RULES: Final = (
    Rule(
        id="host-memory",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("memory",),
        source="Dynamo recipes kimi-k3: 700 to 900 GiB per node; NVIDIA/TensorRT-LLM#17999",
        judge=host_memory,
    ),
    Rule(
        id="host-memory-weights",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("memory",),
        source="NVIDIA/TensorRT-LLM#17999",
        judge=host_memory_for_weights,
    ),
    Rule(
        id="host-memory-available",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("memory",),
        source="Dynamo recipes kimi-k3",
        judge=host_memory_available,
    ),
    Rule(
        id="hugepages",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("memory",),
        source="kernel documentation, hugetlbpage and transhuge",
        judge=huge_pages,
    ),
    Rule(
        id="shm-size",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("shm",),
        source="vllm-project/production-stack#276, vllm#1710, NVIDIA/nccl#290",
        judge=shm_size,
        also=("containers",),
    ),
    Rule(
        id="shm-stale",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("shm",),
        source="llm-d#352",
        judge=shm_stale,
    ),
    Rule(
        id="limit-memlock",
        group=GROUP,
        severity=Severity.ERROR,
        sections=("limits",),
        source=f"{_DOCKER}: --ulimit memlock=-1; NCCL user guide",
        judge=memlock,
    ),
    Rule(
        id="limit-nofile",
        group=GROUP,
        severity=Severity.WARNING,
        sections=("limits",),
        source="TensorRT-LLM deployment guide for Kimi K3: ulimit -n 65536",
        judge=nofile,
    ),
    Rule(
        id="limit-stack",
        group=GROUP,
        severity=Severity.INFO,
        sections=("limits",),
        source=f"{_DOCKER}: --ulimit stack=67108864",
        judge=stack,
    ),
)
