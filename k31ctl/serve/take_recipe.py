"""A recipe and the published additions to it, put into the ledger as this launch wants them."""

from typing import Final

from k31ctl.core.layout import Layout
from k31ctl.core.recipe import Recipe, Role, Status
from k31ctl.errors import UsageError
from k31ctl.serve.asked import Asked
from k31ctl.serve.current_recipe import current_recipe
from k31ctl.serve.draft_settings import is_speculation
from k31ctl.serve.gather import Gathered
from k31ctl.serve.ledger import Ledger
from k31ctl.serve.model_settings import overlay_names
from k31ctl.serve.node_settings import EXPERTS, SIZE_FLAGS
from k31ctl.serve.reasons import flag_reason, variable_reason
from k31ctl.serve.recipe_choice import gpu_word, overlays_for, same_layout, speculates
from k31ctl.serve.rollout import Departure, Standing

_STANDING: Final = {
    Status.VERIFIED: Standing.VERIFIED,
    Status.PUBLISHED: Standing.PUBLISHED,
    Status.UNVERIFIED: Standing.UNVERIFIED,
}
_OF_ONE_LAYOUT: Final = (
    "--moe-a2a-backend",
    "--enable-dp-lm-head",
    "--data-parallel-hybrid-lb",
    "--nnodes",
)
_TEXT_ONLY: Final = "--language-model-only"
_MEGA: Final = {"--moe-backend": "deep_gemm_mega_moe", "--moe-runner-backend": "deep_gemm"}


def take_recipe(ledger: Ledger, gathered: Gathered, recipe: Recipe, layout: Layout) -> None:
    """Put the recipe as its release wants it now, without what belongs to another layout."""
    current = current_recipe(recipe, gathered.catalog)
    own = recipe.model == gathered.repository and gpu_word(gathered.node) in recipe.hardware
    standing = _STANDING[recipe.status] if own else Standing.UNVERIFIED
    alike = same_layout(recipe, layout)
    sizes = SIZE_FLAGS[recipe.engine].values()
    for flag, value in current.flags.items():
        foreign = flag in _OF_ONE_LAYOUT or _MEGA.get(flag) == value
        sizing = flag in sizes or flag == EXPERTS
        if (foreign or sizing) and not alike:
            continue
        if gathered.parts.draft is None and is_speculation(flag):
            ledger.departures.append(Departure(what=flag, reason="no --draft was asked for"))
            continue
        ledger.put(flag, value, flag_reason(flag), source=recipe.source, standing=standing)
    for name, text in current.environment.items():
        ledger.export(name, text, variable_reason(name), source=recipe.source, standing=standing)
    ledger.departures += current.departures
    if not alike:
        text = f"this layout is {layout.text}; what only another one takes was left out"
        ledger.departures.append(Departure(what=f"the layout of {recipe.id}", reason=text))


def add_overlays(ledger: Ledger, gathered: Gathered, asked: Asked, layout: Layout) -> None:
    """Put the published additions that were named, or that the layout calls for."""
    gpu, engine = gathered.node.gpu.architecture, gathered.engine.engine
    names = (
        *overlay_names(engine, gpu, dcp=layout.dcp, text_only=asked.text_only),
        *asked.overlays,
    )
    overlays = overlays_for(gathered.recipes, names)
    known = [recipe.id for recipe in gathered.recipes if recipe.role is Role.OVERLAY]
    for name in names:
        if name not in known:
            raise UsageError(
                f"no addition is called {name[:60]!r}",
                where="--overlay",
                remedy=f"for {engine} there are: {', '.join(known) or 'none'}",
            )
    if asked.text_only and engine != "vllm":
        ledger.put(
            _TEXT_ONLY,
            True,
            flag_reason(_TEXT_ONLY),
            source=gathered.parser,
            standing=Standing.ASKED,
        )
    sizes = SIZE_FLAGS[engine].values()
    for overlay in overlays:
        if speculates(overlay):
            raise UsageError(
                f"{overlay.id} adds a draft model, which takes memory",
                where="--overlay",
                remedy="pass --draft NAME; `k31ctl profiles list drafts` shows them",
            )
        for flag, value in current_recipe(overlay, gathered.catalog).flags.items():
            if flag not in sizes:
                ledger.put(
                    flag,
                    value,
                    flag_reason(flag),
                    source=overlay.source,
                    standing=_STANDING[overlay.status],
                )
        for variable, text in overlay.environment.items():
            ledger.export(
                variable,
                text,
                variable_reason(variable),
                source=overlay.source,
                standing=_STANDING[overlay.status],
            )
