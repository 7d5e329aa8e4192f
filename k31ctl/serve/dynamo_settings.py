"""What Dynamo's workers are told besides the engine's own flags."""

from typing import Final

from k31ctl.core.recipe import Role
from k31ctl.errors import UsageError
from k31ctl.serve.gather import Gathered
from k31ctl.serve.ledger import Ledger
from k31ctl.serve.pool_settings import MODE
from k31ctl.serve.rollout import Choice, Standing

PROGRAMS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "vllm": (("python3", "-m", "dynamo.vllm"), ("--model",)),
    "sglang": (("python3", "-m", "dynamo.sglang"), ("--model-path",)),
}
FRONT_PORT: Final = 8000
_SOURCE: Final = "ai-dynamo/dynamo recipes/kimi-k3"
_EVENTS: Final = {
    "publisher": "zmq",
    "topic": "kv-events",
    "endpoint": "tcp://*:20081",
    "enable_kv_cache_events": True,
}


def check_dynamo(gathered: Gathered) -> None:
    """Refuse an engine that Dynamo has no worker for."""
    if gathered.engine.engine not in PROGRAMS:
        raise UsageError(
            f"Dynamo has no worker for {gathered.engine.engine}",
            where="--as dynamo",
            remedy=f"use --engine {' or '.join(PROGRAMS)}, or --as kubernetes",
        )


def event_settings(ledger: Ledger, gathered: Gathered) -> None:
    """Put what tells the router which prefixes a worker has."""
    if gathered.engine.engine == "vllm":
        ledger.settle(
            "--kv-events-config",
            _EVENTS,
            "tells the router what is cached",
            source=_SOURCE,
            standing=Standing.PUBLISHED,
        )


def own_choices(ledger: Ledger, role: Role, engine: str) -> tuple[Choice, ...]:
    """Flags of Dynamo's own: its half of the work, the same parsers under its names, and images."""
    found = []
    if engine == "vllm" and role is not Role.UNIFIED:
        found.append(_choice(MODE, role.value, "this pool does one half of the work"))
    for kind in ("tool-call", "reasoning"):
        parser = ledger.values.get(f"--{kind}-parser")
        if isinstance(parser, str):
            found.append(_choice(f"--dyn-{kind}-parser", parser, "Dynamo's front end parses"))
    return (*found, _choice("--enable-multimodal", None, "the model takes images"))


def _choice(flag: str, value: str | None, reason: str) -> Choice:
    return Choice(
        flag=flag,
        value=True if value is None else value,
        words=(flag,) if value is None else (flag, value),
        reason=reason,
        source=_SOURCE,
        standing=Standing.PUBLISHED,
    )
