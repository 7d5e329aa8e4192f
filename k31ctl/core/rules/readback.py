"""A running server's own account of itself, held against the launch that should have started it."""

from collections.abc import Iterator, Mapping
from typing import Final

from k31ctl.core.finding import Severity
from k31ctl.core.rules.context import LaunchContext
from k31ctl.core.rules.finding import Finding
from k31ctl.core.rules.memory_fit import fit
from k31ctl.core.rules.open_values import known_or
from k31ctl.values import frozen

CLOSE: Final = 0.15
_VERSION: Final = "readback-version"
_MODEL: Final = "readback-model"
_SETTING: Final = "readback-setting"
_CAPACITY: Final = "readback-capacity"
READBACK_IDS: Final = (_VERSION, _MODEL, _SETTING, _CAPACITY)
_SETS_CACHE: Final = (
    "--gpu-memory-utilization",
    "--mem-fraction-static",
    "--max-model-len",
    "--context-length",
    "--kv-cache-dtype",
    "--speculative-config",
    "--max-num-batched-tokens",
    "--chunked-prefill-size",
    "--mamba-full-memory-ratio",
)
_ALIKE: Final = {"fp8": "fp8_e4m3", "true": "1", "false": "0", "none": "", "auto": ""}


@frozen
class Running:
    """What a server says: settings by the name that the engine gives them, and its capacity.

    ``blocks`` and ``tokens`` are the cache as the engine counts it, None where it does not say.
    """

    source: str
    version: str = ""
    model: str = ""
    settings: Mapping[str, object]
    blocks: int | None = None
    tokens: int | None = None


def readback_findings(context: LaunchContext, running: Running) -> tuple[Finding, ...]:
    """Return what is running otherwise than the launch says."""
    return (
        *_version(context, running),
        *_model(context, running),
        *_settings(context, running),
        *_capacity(context, running),
    )


def _finding(
    rule: str,
    severity: Severity,
    message: str,
    remedy: str,
    running: Running,
    *,
    positions: tuple[int, ...] = (),
) -> Finding:
    return Finding(
        id=rule,
        severity=severity,
        message=message,
        remedy=remedy,
        source=running.source,
        positions=positions,
    )


def _version(context: LaunchContext, running: Running) -> Iterator[Finding]:
    given = running.version.partition("+")[0]
    if given and given != context.version:
        yield _finding(
            _VERSION,
            Severity.WARNING,
            f"{context.name} {running.version} is running, and the launch was checked as "
            f"{context.version}",
            f"check it again with --engine {context.name}@{given}",
            running,
        )


def _model(context: LaunchContext, running: Running) -> Iterator[Finding]:
    named = context.value("--served-model-name")
    names = named if isinstance(named, tuple | list) else (named or context.launch.model,)
    wanted = [str(name) for name in names if name]
    if running.model and wanted and running.model not in wanted and "$" not in wanted[0]:
        yield _finding(
            _MODEL,
            Severity.ERROR,
            f"{running.model} is served, and the launch names {wanted[0]}",
            "find out which launch started this server",
            running,
        )


def _settings(context: LaunchContext, running: Running) -> Iterator[Finding]:
    """Every setting of the launch that the server has under the same name with another value."""
    for setting in {s.dest: s for s in context.launch.settings}.values():
        if setting.dest not in running.settings or setting.dest in ("model", "model_path"):
            continue
        wanted, actual = _plain(setting.value), _plain(running.settings[setting.dest])
        if wanted in ("", actual) or "$" in wanted:
            continue
        yield _finding(
            _SETTING,
            Severity.ERROR,
            f"{setting.flag} is {running.settings[setting.dest]} in the running server, and "
            f"{' '.join(setting.words) or setting.value} in the launch",
            "restart the server with this launch, or find out which launch started it",
            running,
            positions=setting.positions,
        )


def _plain(value: object) -> str:
    """A value as text in which equal values are equal, empty where it says nothing."""
    if isinstance(value, dict | list | tuple):
        return ""
    text = str(value).strip().casefold()
    try:
        return f"{float(text):.6g}"
    except ValueError:
        return _ALIKE.get(text, text)


def _capacity(context: LaunchContext, running: Running) -> Iterator[Finding]:
    """The engine's own cache beside the planner's, where both are known."""
    if any(map(context.is_open, _SETS_CACHE)):
        return
    planned = known_or(lambda: fit(context), None)
    if planned is None or planned.built is None:
        return
    pool = planned.built.pool.capacity(planned.max_model_len)
    pairs = (
        ("blocks", running.blocks, getattr(pool, "num_blocks", None)),
        ("tokens", running.tokens, getattr(pool, "kv_cache_tokens", None)),
    )
    for what, actual, expected in pairs:
        if not actual or not expected or abs(actual / expected - 1) <= CLOSE:
            continue
        yield _finding(
            _CAPACITY,
            Severity.WARNING,
            f"the cache holds {actual:,} {what}, and {expected:,} were planned "
            f"({actual / expected - 1:+.0%})",
            "compare the memory lines of the start-up log with k31ctl plan",
            running,
        )
