"""Every check with its name, how bad it is when it fails, and the APIs that it is for."""

from collections.abc import Callable, Sequence
from typing import Final

from k31ctl.bench.conformance import check_answers as answers
from k31ctl.bench.conformance import check_controls as controls
from k31ctl.bench.conformance import check_counts as counts
from k31ctl.bench.conformance import check_inputs as inputs
from k31ctl.bench.conformance import check_service as service
from k31ctl.bench.conformance import check_tools as tools
from k31ctl.bench.conformance.probe import Probe
from k31ctl.bench.conformance.verdicts import Outcome
from k31ctl.core.finding import Severity
from k31ctl.errors import UsageError
from k31ctl.values import frozen

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
_BOTH: Final = ("chat", "messages")
_CHAT: Final = ("chat",)


@frozen
class Check:
    """One question about the contract."""

    id: str
    severity: Severity
    run: Callable[[Probe], Outcome]
    apis: tuple[str, ...] = _BOTH

    @property
    def title(self) -> str:
        """What is asked, in one sentence."""
        return (self.run.__doc__ or "").split("\n")[0].replace("``", "`")


CHECKS: Final = (
    Check(id="answer-shape", severity=_ERROR, run=answers.answer_shape),
    Check(id="stream-shape", severity=_ERROR, run=answers.stream_shape),
    Check(id="stream-equal", severity=_ERROR, run=answers.stream_equal),
    Check(id="reasoning-separated", severity=_ERROR, run=answers.reasoning_separated),
    Check(id="reasoning-cut", severity=_ERROR, run=answers.reasoning_cut),
    Check(id="usage", severity=_ERROR, run=controls.usage),
    Check(id="max-tokens", severity=_ERROR, run=controls.max_tokens),
    Check(id="tool-call", severity=_ERROR, run=tools.tool_call),
    Check(id="tool-stream", severity=_ERROR, run=tools.tool_stream),
    Check(id="tool-choice", severity=_ERROR, run=tools.tool_choice),
    Check(id="tool-round-trip", severity=_ERROR, run=tools.tool_round_trip),
    Check(id="parallel-calls", severity=_ERROR, run=tools.parallel_calls),
    Check(id="reasoning-kept", severity=_ERROR, run=tools.reasoning_kept),
    Check(id="reasoning-dropped", severity=_INFO, run=tools.reasoning_dropped),
    Check(id="effort-values", severity=_ERROR, run=controls.effort_values),
    Check(id="effort-rejected", severity=_WARNING, run=controls.effort_rejected),
    Check(id="effort-note", severity=_ERROR, run=counts.effort_note),
    Check(id="prompt-tokens", severity=_ERROR, run=counts.prompt_tokens),
    Check(id="prompt-opener", severity=_WARNING, run=counts.prompt_opener),
    Check(id="markup-is-text", severity=_ERROR, run=inputs.markup_is_text),
    Check(id="json-schema", severity=_ERROR, run=controls.json_schema, apis=_CHAT),
    Check(id="json-object", severity=_ERROR, run=controls.json_object, apis=_CHAT),
    Check(id="stop", severity=_ERROR, run=controls.stop_strings),
    Check(id="logprobs", severity=_WARNING, run=controls.logprobs, apis=_CHAT),
    Check(id="unicode", severity=_ERROR, run=inputs.unicode_text),
    Check(id="control-characters", severity=_WARNING, run=inputs.control_characters),
    Check(id="image", severity=_ERROR, run=inputs.image_input),
    Check(id="error-shapes", severity=_ERROR, run=service.error_shapes),
    Check(id="wrong-key", severity=_ERROR, run=service.wrong_key),
    Check(id="isolation", severity=_ERROR, run=service.isolation),
    Check(id="cancellation", severity=_ERROR, run=service.cancellation),
    Check(id="context-exceeded", severity=_ERROR, run=inputs.context_exceeded),
    Check(id="long-context", severity=_ERROR, run=inputs.long_context),
)


def chosen(only: Sequence[str], without: Sequence[str]) -> tuple[Check, ...]:
    """The checks to run, in their own order; raises UsageError for a name that is none."""
    known = {check.id for check in CHECKS}
    for option, names in (("--check", only), ("--skip", without)):
        for name in names:
            if name not in known:
                raise UsageError(
                    f"there is no check {name!r}",
                    where=option,
                    remedy=f"checks are {', '.join(sorted(known))}",
                )
    found = tuple(
        check for check in CHECKS if (check.id in only or not only) and check.id not in without
    )
    if not found:
        raise UsageError(
            "no check is left to run", where="--check, --skip", remedy="leave out one of them"
        )
    return found
