"""A plan that was written down and the options beside it, as one wish that says what it left."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from k31ctl.core.kv_cache import KvFormat
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.planned import Counted, PlannedSettings
from k31ctl.errors import UsageError
from k31ctl.values import frozen

if TYPE_CHECKING:
    from k31ctl.catalog.plan_file import PlanFile

_SIZES: Final = ("nodes", "tp", "pp", "dp", "ep", "dcp")


@frozen
class Wish:
    """What is to be served, by options and plan together; ``warnings`` say what was passed over."""

    model: str
    engine: str
    hardware: str
    layout: AskedLayout
    context_tokens: int | None
    max_model_len: int | None
    kv_dtype: KvFormat | None
    draft: str | None
    draft_tokens: int | None
    text_only: bool
    settings: PlannedSettings
    counted: Counted | None = None
    warnings: tuple[str, ...] = ()


def joined(
    planned: "PlanFile",
    given: Wish,
    said: Collection[str],
    *,
    model_id: Callable[[str], str],
) -> Wish:
    """Return the plan's deployment with what the options add to it.

    ``said`` are the options that were written; ``model_id`` names the profile of a model. Raises
    UsageError where they name another model, engine, hardware or layout than the plan. Of lengths,
    cache and draft the options win, with a warning.
    """
    if "model" in said and model_id(given.model) != planned.model:
        raise _contradiction("MODEL", given.model, planned.model)
    if "engine" in said and not _same_engine(given.engine, planned.engine):
        raise _contradiction("--engine", given.engine, planned.engine)
    if "on" in said and given.hardware != planned.hardware:
        raise _contradiction("--on", given.hardware, planned.hardware)
    for size in _SIZES:
        value = getattr(given.layout, size)
        if size in said and value != planned.sizes[size]:
            raise _contradiction(
                f"--{size}", f"--{size} {value}", f"--{size} {planned.sizes[size]}"
            )
    return _added(planned, given, said)


def _same_engine(given: str, planned: str) -> bool:
    """Whether the name is the plan's, and the version too where one is given."""
    name, _, version = given.partition("@")
    return name == planned.partition("@")[0] and version in ("", planned.partition("@")[2])


def _contradiction(where: str, given: str, planned: str) -> UsageError:
    return UsageError(
        f"{given[:80]} is asked for, and the plan is for {planned}",
        where=f"{where}, --plan",
        remedy=f"leave {where} out, or plan again with it",
    )


def _added(planned: "PlanFile", given: Wish, said: Collection[str]) -> Wish:
    first, warnings = planned.contexts[0], []
    options = {
        "context": ("context_tokens", first),
        "max_model_len": ("max_model_len", planned.max_model_len),
        "kv_dtype": ("kv_dtype", planned.kv_dtype),
        "draft": ("draft", planned.draft),
        "draft_tokens": ("draft_tokens", planned.draft_tokens),
        "text_only": ("text_only", planned.text_only),
    }
    taken: dict[str, Any] = {}
    for option, (name, value) in options.items():
        own = getattr(given, name)
        taken[name] = own if option in said else value
        if option in said and own != value and value:
            flag = option.replace("_", "-")
            warnings.append(f"--{flag} {own} is taken in the place of the plan's {value}")
    if "draft" in said and "draft_tokens" not in said and taken["draft"] != planned.draft:
        taken["draft_tokens"] = None
    if len(planned.contexts) > 1 and "context" not in said:
        lengths = f"{len(planned.contexts)} lengths"
        warnings.append(f"the plan has {lengths}; the first, {first:,} tokens, is the usual one")
    return replace(
        given,
        model=given.model if "model" in said else planned.model,
        engine=planned.engine,
        hardware=planned.hardware,
        layout=AskedLayout(**planned.sizes),
        settings=planned.settings,
        counted=planned.counted,
        warnings=tuple(warnings),
        **taken,
    )
