"""What a plan that was written with ``k31ctl plan --json`` was asked for."""

from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.plan_document import read_plan
from k31ctl.core.kv_cache import IndexFormat, KvFormat, StateDtype
from k31ctl.core.layout_rules import MOST_RANKS
from k31ctl.core.planned import Counted, PlannedSettings
from k31ctl.errors import InputError
from k31ctl.values import frozen

_SIZES: Final = ("nodes", "tp", "pp", "dp", "ep", "dcp")


@frozen
class PlanFile:
    """The deployment of a plan; ``engine`` with its version."""

    model: str
    engine: str
    hardware: str
    sizes: dict[str, int]
    contexts: tuple[int, ...]
    max_model_len: int | None
    kv_dtype: KvFormat | None
    counted: Counted | None
    draft: str | None
    draft_tokens: int | None
    text_only: bool
    settings: PlannedSettings


def load_plan_file(path: Path) -> PlanFile:
    """Return the deployment that a plan's document describes; InputError for any other file."""
    document = read_plan(path)
    try:
        inputs = document["inputs"]
        if "systems" in inputs:
            raise _no_plan(path, "the document of a search, which holds many plans")
        return _plan_file(inputs, document.get("result") or {})
    except (KeyError, TypeError, ValueError, IndexError, AttributeError):
        raise _no_plan(path, "not the document of a plan") from None


def _plan_file(inputs: Any, result: Any) -> PlanFile:
    request = inputs["request"]
    asked = inputs.get("asked") or {}
    kv_dtype = asked.get("kv_dtype")
    draft = inputs.get("draft")
    return PlanFile(
        model=str(inputs["model"]),
        engine=f"{inputs['engine']}@{inputs['engine_version']}",
        hardware=str(inputs["hardware"]),
        sizes={size: _ranks(inputs["layout"][size]) for size in _SIZES},
        contexts=_lengths(request["contexts"]),
        max_model_len=_number(request["max_model_len"]),
        kv_dtype=KvFormat(kv_dtype) if kv_dtype else None,
        counted=_counted(result),
        draft=str(draft) if draft else None,
        draft_tokens=int(asked.get("draft_tokens") or request["draft_tokens"]) if draft else None,
        text_only=bool(request.get("text_only")),
        settings=_settings(request, asked, result),
    )


def _ranks(value: Any) -> int:
    if not 1 <= (ranks := int(value)) <= MOST_RANKS:
        raise ValueError
    return ranks


def _counted(result: Any) -> Counted | None:
    if not result:
        return None
    tokens = result["capacity"]["kv_cache_tokens"]
    return Counted(kv_cache_tokens=int(tokens), kv_format=KvFormat(result["cache"]["kv_format"]))


def _settings(request: Any, asked: Any, result: Any) -> PlannedSettings:
    state, index, ratio = (asked.get(k) for k in ("state_dtype", "index_dtype", "state_ratio"))
    fraction = asked.get("memory_fraction")
    batch = max(int(count) for count in request["batches"])
    return PlannedSettings(
        kv_memory_bytes=_number(request.get("kv_memory_bytes")),
        memory_fraction=None if fraction is None else float(fraction),
        chunk_tokens=_number(asked.get("chunk_tokens")),
        state_dtype=StateDtype(state) if state and state != StateDtype.FP32 else None,
        index_dtype=IndexFormat(index) if index else None,
        state_ratio=None if ratio is None else float(ratio),
        no_prefix_caching=request.get("prefix_caching") is False,
        replay_ssm=bool(asked.get("replay_ssm")),
        batch=batch if batch > 1 else None,
        unwritten=_unwritten(asked, result),
    )


def _unwritten(asked: Any, result: Any) -> tuple[str, ...]:
    """Options of the plan that no engine is started with, where they were given."""
    options = {
        "state_slots": "--state-slots",
        "offload": "--offload",
        "resident_experts": "--resident-experts",
        "lora_rank": "--lora",
    }
    given = [f"{name} {asked[key]}" for key, name in options.items() if asked.get(key)]
    return (*given, *(("--disaggregate",) if result.get("disaggregation") else ()))


def _lengths(values: Any) -> tuple[int, ...]:
    found = tuple(int(tokens) for tokens in values)
    if not found:
        raise ValueError("a plan has a length")
    return found


def _number(value: Any) -> int | None:
    return None if value is None else int(value)


def _no_plan(path: Path, what: str) -> InputError:
    return InputError(
        what,
        where=str(path),
        remedy="write one with k31ctl plan ... --json",
    )
