"""Renew docs/recipes.md: every published recipe beside what ``k31ctl serve`` writes for its cell.

Run ``python docs/generate_recipes.py`` after a change of recipes, catalogs or composition;
``tests/serve/test_recipe_table.py`` calls the same functions and fails where the page differs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.flags import find_flags
from k31ctl.catalog.recipes import recipes_for
from k31ctl.core.launch_form import find_call
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.read_launch import read_launch
from k31ctl.core.recipe import Recipe, Role
from k31ctl.errors import RefusedError
from k31ctl.serve.asked import Aim, Asked, Target
from k31ctl.serve.compose import compose
from k31ctl.serve.gather import ENGINES, gather
from k31ctl.serve.ledger import shown
from k31ctl.serve.recipe_choice import speculates
from k31ctl.serve.rollout import Server

PAGE: Final = Path(__file__).parent / "recipes.md"
STORE: Final = Store(default_folders())
_DRAFTS: Final = {
    "vllm": "inferact-k3-dspark",
    "sglang": "radixark-k3-dspark",
    "tokenspeed": "inferact-k3-dspark",
}
_AIMS: Final = {
    "low-latency": Aim.LATENCY,
    "balanced": Aim.BALANCED,
    "high-throughput": Aim.THROUGHPUT,
    "peak-throughput": Aim.THROUGHPUT,
    "peak-capacity": Aim.CONTEXT,
    "long-context": Aim.CONTEXT,
}
_SIZES: Final = ("tp", "pp", "dp", "ep", "dcp")
_GPUS_OF_NODE: Final = {"GB200": 4, "GB300": 4}
_MODEL_FLAGS: Final = ("--model", "--model-path", "model_tag", "model_path")
_HEAD: Final = """# Published recipes and what serve writes

Each of the 66 published settings for Kimi K3 beside what `k31ctl serve` writes for the same model,
hardware, engine, layout and aim. Flags are compared by their documented names and their values, as
the release's own parser reads them. What is the same is not listed; everything else is, with its
reason. Where memory does not hold a recipe, `serve` refuses it and the reason stands here.

Written by `docs/generate_recipes.py`, checked by a test.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One recipe: what became of it, and each difference with its reason."""

    recipe: Recipe
    outcome: str
    changed: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str], ...]


def rows() -> list[Row]:
    """Every published recipe, compared."""
    return [_row(r) for engine in ENGINES for r in recipes_for(STORE, engine=engine)]


def published_flags(recipe: Recipe) -> dict[str, object]:
    """The flags of a recipe as the release reads them; what it does not know is left out."""
    call = find_call(recipe.words)
    assert call is not None
    read = read_launch(recipe.words, call, find_flags(STORE, recipe.engine).catalog)
    return {s.flag: s.value for s in read.settings if s.flag not in _MODEL_FLAGS}


def server_for(recipe: Recipe) -> Server:
    """What serve composes for the recipe's own cell; RefusedError where that does not fit."""
    gpu = recipe.hardware[0] if recipe.hardware else "B300"
    each = _GPUS_OF_NODE.get(gpu, 8)
    overlay = recipe.role is Role.OVERLAY
    drafts = speculates(recipe)
    gathered = gather(
        STORE,
        model="kimi-k3",
        engine=recipe.engine,
        on=f"{each}x-{gpu.lower()}",
        draft=_DRAFTS[recipe.engine] if drafts else None,
        image=None,
    )
    by_option = recipe.id in ("vllm-overlay-dcp8", "vllm-overlay-text-only")
    sizes: dict[str, Any] = {size: recipe.layout.get(size) for size in _SIZES}
    if recipe.layout and not overlay:
        sizes = {size: recipe.layout.get(size, 1) for size in _SIZES}
        if "--enable-expert-parallel" in recipe.flags and recipe.engine == "vllm":
            sizes["ep"] = sizes["tp"] * sizes["dp"]
    return compose(
        gathered,
        Asked(
            role=Role.UNIFIED if overlay else recipe.role,
            layout=AskedLayout(nodes=max(1, recipe.nodes * recipe.gpus_per_node // each), **sizes),
            aim=_AIMS.get(recipe.goal),
            target=Target.DYNAMO if recipe.form.endswith("dynamo.vllm") else Target.SHELL,
            context_tokens=8192,
            kv_dtype=None,
            max_model_len=None,
            draft="asked" if drafts else None,
            draft_tokens=_draft_tokens(recipe),
            overlays=(recipe.id,) if overlay and not (drafts or by_option) else (),
            text_only=recipe.id == "vllm-overlay-text-only",
            port=None,
            served_name=None,
            folder=None,
            image=None,
        ),
        name="serve",
    )


def _draft_tokens(recipe: Recipe) -> int | None:
    config = recipe.flags.get("--speculative-config")
    if isinstance(config, Mapping):
        return int(config["num_speculative_tokens"])
    return None


def _row(recipe: Recipe) -> Row:
    try:
        server = server_for(recipe)
    except RefusedError as error:
        reason = f"{error.what} (rule {error.rule}; {error.remedy})"
        return Row(recipe=recipe, outcome=f"refused: {reason}", changed=(), added=())
    published = published_flags(recipe)
    written = {choice.flag: choice for choice in server.choices}
    reasons = {choice.flag: choice.reason for choice in server.choices}
    told = {d.what.split(" ")[0]: d.reason for d in server.departures}
    renamed = {d.subject: f"{d.note}; now {d.now}" for d in recipe.drift}
    for drift in recipe.drift:
        partner = drift.now.partition(", without ")[2]
        renamed |= {partner: renamed[drift.subject]} if partner else {}
    changed = []
    for flag, value in published.items():
        if flag not in written:
            changed.append((f"{flag} {shown(value)}", renamed.get(flag) or told.get(flag, "")))
        elif value != written[flag].value:
            said = f"{flag} {shown(value)}, not {shown(written[flag].value)}"
            changed.append((said, told.get(flag) or reasons[flag]))
    changed += [(name, why) for name, why in renamed.items() if name not in published]
    added = [(f, reasons[f]) for f in written if f not in published and f not in _now(recipe)]
    base = server.recipe.id if server.recipe else "none"
    outcome = "itself" if base == recipe.id else f"from {base}"
    return Row(recipe=recipe, outcome=outcome, changed=tuple(changed), added=tuple(added))


def _now(recipe: Recipe) -> set[str]:
    return {drift.now.split(" ")[0].rstrip(",") for drift in recipe.drift}


def page() -> str:
    """The whole page."""
    every = rows()
    lines = [_HEAD]
    same = sum(row.outcome == "itself" and not row.changed for row in every)
    refused = [row for row in every if row.outcome.startswith("refused")]
    lines += [
        f"{len(every)} recipes; {same} written with every published flag and value, "
        f"{len(every) - same - len(refused)} with the differences below, {len(refused)} refused.",
        "",
        "| recipe | written | published, but not so written | added |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row.recipe.id} | {_cell(row.outcome)} | {_listed(row.changed)} "
        f"| {', '.join(f'`{flag}`' for flag, _ in row.added)} |"
        for row in every
    ]
    reasons = sorted({(flag, _usual(why)) for row in every for flag, why in row.added})
    lines += ["", "## Why flags are added", "", "| flag | reason |", "|---|---|"]
    lines += [f"| `{flag}` | {_cell(why)} |" for flag, why in reasons]
    return "\n".join(lines) + "\n"


def _usual(reason: str) -> str:
    """A reason without the numbers of one launch."""
    if reason.startswith("the cache holds"):
        one = "one request of" in reason
        return "the longest request that the cache holds" if one else "what the cache holds at once"
    return reason


def _listed(differences: tuple[tuple[str, str], ...]) -> str:
    return "<br>".join(f"`{_cell(what)}`: {_cell(why)}" for what, why in differences)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
