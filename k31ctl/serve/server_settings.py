"""How a server is called, where it answers, how long it takes to start, what its host provides."""

from typing import Final

from k31ctl.core.further import AskedStart, further
from k31ctl.core.layout import Layout
from k31ctl.core.plan import Plan
from k31ctl.core.storage import Startup, Storage
from k31ctl.serve.asked import Asked, Target
from k31ctl.serve.gather import Gathered
from k31ctl.serve.ledger import Ledger
from k31ctl.serve.reasons import variable_reason
from k31ctl.serve.rollout import NodeValue, Standing, Where

PROGRAMS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "vllm": (("vllm", "serve"), ()),
    "sglang": (("python3", "-m", "sglang.launch_server"), ("--model-path",)),
    "tokenspeed": (("ts", "serve"), ()),
}
PORTS: Final = {"vllm": 8000, "sglang": 30000, "tokenspeed": 8000}
METRICS_PORTS: Final = {"tokenspeed": 29000}
_METRICS: Final = "--prometheus-port"
HEALTH: Final = {"vllm": "/health", "sglang": "/health", "tokenspeed": "/readiness"}
READY_LINES: Final = {
    "vllm": "Application startup complete.",
    "sglang": "The server is fired up and ready to roll!",
    "tokenspeed": "",
}
_BEFORE_READING: Final = ("download", "verification", "copy from the bucket")
_FALLBACK_S: Final = 7200.0
SHARED_MEMORY_BYTES: Final = 200 * 2**30
_OWN_ADDRESS: Final = {"vllm": "VLLM_HOST_IP", "sglang": "SGLANG_HOST_IP"}
_LOAD_TIMEOUT_S: Final = 3600
_STEP_TIMEOUT_S: Final = 1800


def answer_settings(ledger: Ledger, gathered: Gathered, asked: Asked) -> None:
    """Put where the server listens, under which name, and that it shows its metrics."""
    engine = gathered.engine.engine
    source = gathered.parser

    def put(flag: str, value: object, reason: str, standing: Standing) -> None:
        ledger.put(flag, value, reason, source=source, standing=standing)

    name = asked.served_name or (gathered.repository if asked.folder else None)
    if name is not None:
        standing = Standing.ASKED if asked.served_name else Standing.DERIVED
        value = [name] if engine == "vllm" else name
        put("--served-model-name", value, "the name that clients ask for", standing)
    if asked.target is Target.DYNAMO:
        return
    put("--host", "0.0.0.0", "clients on other machines reach it", Standing.DERIVED)
    port = asked.port or PORTS[engine]
    put("--port", port, "where it answers", Standing.ASKED if asked.port else Standing.DERIVED)
    on_amd = engine == "tokenspeed" and gathered.node.gpu.vendor == "amd"
    if on_amd and "--sampling-backend" not in ledger.flags:
        reason = "on AMD it decodes greedily unless this is set"
        put("--sampling-backend", "triton", reason, Standing.DERIVED)
    if engine == "tokenspeed":
        reason = "Prometheus reads /metrics here; without it the gateway takes any free port"
        put(_METRICS, METRICS_PORTS[engine], reason, Standing.DERIVED)
    if engine == "sglang":
        put("--enable-metrics", True, "Prometheus reads /metrics", Standing.DERIVED)


def host_variables(ledger: Ledger, gathered: Gathered, layout: Layout) -> None:
    """Put what several nodes and slow loads need, where the recipe has not."""
    engine = gathered.engine.engine
    if layout.nodes > 1:
        _addresses(ledger, engine)
    if engine == "vllm":
        source = "vLLM 0.33.0 envs.py; vllm issue 41530"
        _export(ledger, "VLLM_ENGINE_READY_TIMEOUT_S", str(_LOAD_TIMEOUT_S), source)
        if layout.pp > 1:
            _export(ledger, "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", str(_STEP_TIMEOUT_S), source)
    if engine == "sglang" and layout.nodes > 1:
        for flag in ("--watchdog-timeout", "--dist-timeout"):
            if flag not in ledger.flags:
                ledger.put(
                    flag,
                    _LOAD_TIMEOUT_S,
                    "nodes wait for the slowest to load",
                    source="sglang issue 12289",
                    standing=Standing.DERIVED,
                )


def _addresses(ledger: Ledger, engine: str) -> None:
    source = "vllm issues 7074 and 19045: the wrong interface is picked"
    for name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"):
        value = NodeValue(where=Where.INTERFACE)
        ledger.export(name, value, variable_reason(name), source=source, standing=Standing.DERIVED)
    if engine in _OWN_ADDRESS:
        name = _OWN_ADDRESS[engine]
        address = NodeValue(where=Where.NODE_ADDRESS)
        ledger.export(
            name, address, variable_reason(name), source=source, standing=Standing.DERIVED
        )


def _export(ledger: Ledger, name: str, value: str, source: str) -> None:
    ledger.export(name, value, variable_reason(name), source=source, standing=Standing.DERIVED)


def shared_memory_bytes(gathered: Gathered) -> int:
    """Shared memory of a container, in bytes: what published samples give, or half of the host."""
    return min(SHARED_MEMORY_BYTES, gathered.node.host_memory_bytes // 2)


def start_times(storage: Storage, startup: Startup, plan: Plan) -> tuple[float, float]:
    """Seconds from the start of the processes to the first token: expected, and at worst."""
    if plan.speed.performance is None:
        return _FALLBACK_S / 2, _FALLBACK_S
    asked = AskedStart(
        storage=storage,
        reader=None,
        startup=startup,
        link=storage.read,
        warm_caches=False,
    )
    found = further(plan, start=asked, pools=None).cold_start
    assert found is not None
    own = [part.seconds for part in found.parts if part.part not in _BEFORE_READING]
    return sum(time.value for time in own), sum(time.high for time in own)
