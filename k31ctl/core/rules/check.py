"""Every rule, asked about one launch."""

from k31ctl.core.finding import Severity
from k31ctl.core.launch import Form
from k31ctl.core.rules.allocation_rules import ALLOCATION_RULES
from k31ctl.core.rules.container_rules import CONTAINER_RULES
from k31ctl.core.rules.context import LaunchContext
from k31ctl.core.rules.finding import Finding
from k31ctl.core.rules.kernel_rules import KERNEL_RULES
from k31ctl.core.rules.model_rules import MODEL_RULES
from k31ctl.core.rules.node_rules import NODE_RULES
from k31ctl.core.rules.place_rules import PLACE_RULES
from k31ctl.core.rules.read_rules import read_findings
from k31ctl.core.rules.rule import Rule
from k31ctl.core.rules.script_rules import SCRIPT_RULES
from k31ctl.core.rules.sglang_draft_rules import SGLANG_DRAFT_RULES
from k31ctl.core.rules.sglang_rules import SGLANG_RULES
from k31ctl.core.rules.sglang_state_rules import SGLANG_STATE_RULES
from k31ctl.core.rules.size_rules import SIZE_RULES
from k31ctl.core.rules.tokenspeed_rules import TOKENSPEED_RULES
from k31ctl.core.rules.vllm_cache_rules import VLLM_CACHE_RULES
from k31ctl.core.rules.vllm_draft_rules import VLLM_DRAFT_RULES
from k31ctl.core.rules.vllm_memory_rules import VLLM_MEMORY_RULES
from k31ctl.core.rules.vllm_node_rules import VLLM_NODE_RULES
from k31ctl.core.rules.vllm_rules import VLLM_RULES

RULES: tuple[Rule, ...] = (
    *MODEL_RULES,
    *SIZE_RULES,
    *VLLM_RULES,
    *VLLM_DRAFT_RULES,
    *VLLM_NODE_RULES,
    *VLLM_CACHE_RULES,
    *VLLM_MEMORY_RULES,
    *SGLANG_RULES,
    *SGLANG_DRAFT_RULES,
    *SGLANG_STATE_RULES,
    *TOKENSPEED_RULES,
    *KERNEL_RULES,
    *CONTAINER_RULES,
    *ALLOCATION_RULES,
    *PLACE_RULES,
    *NODE_RULES,
    *SCRIPT_RULES,
)
_ORDER = list(Severity)
_OF_PLANNER = "layout-refused"


def check(context: LaunchContext) -> tuple[Finding, ...]:
    """Return everything wrong with a launch, worst first, then in the order of its words.

    What depends on the model, the hardware or the container is left out where that is not known.
    """
    found = list(read_findings(context))
    starts_engine = context.launch.form is not Form.SGLANG_ROUTER
    for rule in RULES if starts_engine else ():
        if rule.holds(context):
            found += rule.findings(context)
    found = [each for each in found if not _told_better(each, found)]
    return tuple(sorted(found, key=lambda f: (_ORDER.index(f.severity), f.positions[:1], f.id)))


def _told_better(finding: Finding, found: list[Finding]) -> bool:
    """Whether the planner's refusal of a layout says again what the engine's own rule says."""
    return finding.id == _OF_PLANNER and any(
        other.id != _OF_PLANNER
        and other.severity is Severity.ERROR
        and set(other.positions) & set(finding.positions)
        for other in found
    )
