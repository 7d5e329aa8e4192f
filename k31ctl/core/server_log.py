"""What the log of a starting server says: its capacity, that it is ready, or why it will not be."""

import re
from typing import Final

from k31ctl.core.rules import Finding, Severity
from k31ctl.values import frozen

_CAPACITY: Final = (
    re.compile(r"GPU KV cache size: ([\d,]+) tokens"),
    re.compile(r"max_total_num_tokens=(\d+)"),
)
_READY: Final = (
    "Application startup complete.",
    "The server is fired up and ready to roll!",
)
TOLERANCE: Final = 0.1
_MOST_CHARACTERS: Final = 4000


@frozen
class _Trouble:
    """A line that tells of a failure that is known."""

    id: str
    pattern: re.Pattern[str]
    message: str
    remedy: str
    source: str


def _known(name: str, pattern: str, message: str, remedy: str, source: str) -> _Trouble:
    return _Trouble(
        id=f"log-{name}",
        pattern=re.compile(pattern, re.IGNORECASE),
        message=message,
        remedy=remedy,
        source=source,
    )


TROUBLES: Final = (
    _known(
        "out-of-memory",
        r"OutOfMemoryError|CUDA out of memory|HIP out of memory",
        "a GPU ran out of memory",
        "lower the memory fraction by 0.03, or the chunk of prompt tokens, or --max-model-len",
        "vllm-project/recipes issue 698; vllm issue 39788",
    ),
    _known(
        "no-cache",
        r"No available memory for the cache blocks|Not enough memory\. Please try to increase",
        "weights and buffers leave no memory for the cache",
        "use more nodes, or raise the memory fraction; k31ctl plan shows where it goes",
        "vLLM 0.33.0 v1/core; SGLang 0.5.23 mem_cache",
    ),
    _known(
        "length",
        r"larger than the available KV cache memory|larger than the maximum number of tokens",
        "one request of the maximum length is more than the cache holds",
        "lower --max-model-len; k31ctl serve writes the longest that fits",
        "vLLM 0.33.0 v1/core",
    ),
    _known(
        "flag",
        r"error: (unrecognized arguments|ambiguous option|argument --)",
        "this release does not take one of the flags",
        "run k31ctl lint on the command with the version that is installed",
        "the engine's own argument parser",
    ),
    _known(
        "architecture",
        r"Model architectures .* (are|is) not supported|does not recognize this architecture",
        "this release does not read the checkpoint",
        "use a release that does; k31ctl serve refuses the others",
        "vLLM 0.33.0 model_executor/models/registry.py",
    ),
    _known(
        "remote-code",
        r"trust_remote_code=True|contains custom code which must be executed",
        "the checkpoint's own code may not run",
        "add --trust-remote-code",
        "vllm-project/recipes pull 116",
    ),
    _known(
        "shared-memory",
        r"unhandled system error|No space left on device.*/dev/shm|creating shared memory segment",
        "NCCL found too little shared memory, or none that it may use",
        "give the container host IPC or a larger /dev/shm; k31ctl doctor measures it",
        "vllm-project/production-stack issue 276; vllm issue 1710",
    ),
    _known(
        "driver",
        r"driver version is insufficient|CUDA driver initialization failed",
        "the driver is older than this build needs",
        "update the driver, 580 or newer for CUDA 13",
        "vllm-project/recipes, Kimi-K3",
    ),
    _known(
        "port",
        r"Address already in use",
        "another process has the port",
        "choose another with --port, or stop that process",
        "the operating system",
    ),
    _known(
        "open-files",
        r"Too many open files",
        "the limit of open files is too low",
        "ulimit -n 65536",
        "TensorRT-LLM deployment guide for Kimi K3",
    ),
    _known(
        "step-timeout",
        r"RPC call to (sample_tokens|execute_model) timed out",
        "the first step took longer than it may",
        "export VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800",
        "vllm issue 41530",
    ),
    _known(
        "vocabulary",
        r"No module named '?blobfile",
        "a package that reads the vocabulary is missing",
        "pip install blobfile, or use the engine's own image",
        "vllm issue 21750",
    ),
)


@frozen
class LogLine:
    """What one line says; nothing in most."""

    ready: bool = False
    capacity_tokens: int | None = None
    finding: Finding | None = None


def read_line(line: str, *, number: int) -> LogLine:
    """Return what a line of a server's log says; ``number`` counts from 1."""
    text = line[:_MOST_CHARACTERS]
    for pattern in _CAPACITY:
        found = pattern.search(text)
        if found is not None:
            return LogLine(capacity_tokens=int(found[1].replace(",", "")))
    if any(ready in text for ready in _READY):
        return LogLine(ready=True)
    for trouble in TROUBLES:
        if trouble.pattern.search(text):
            return LogLine(finding=_finding(trouble, number))
    return LogLine()


def _finding(trouble: _Trouble, number: int) -> Finding:
    return Finding(
        id=trouble.id,
        severity=Severity.ERROR,
        message=trouble.message,
        remedy=trouble.remedy,
        source=trouble.source,
        where=f"log:{number}",
    )


def capacity_finding(*, predicted: int, logged: int) -> Finding | None:
    """A finding where the cache is a tenth smaller or larger than was predicted, else None."""
    if abs(logged - predicted) <= TOLERANCE * predicted:
        return None
    less = logged < predicted
    return Finding(
        id="readback-capacity",
        severity=Severity.WARNING,
        message=f"the cache holds {logged:,} tokens, {predicted:,} were predicted",
        remedy=(
            "look for what else takes memory on a GPU: k31ctl doctor, nvidia-smi"
            if less
            else "nothing has to be done; the memory model reserved more than was used"
        ),
        source="the memory model",
        where="log",
    )
