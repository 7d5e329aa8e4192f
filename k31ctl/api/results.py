"""Results by the names that ``--json`` and gates have for them."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from k31ctl.api.runs import SiteFit
from k31ctl.core.gates import GateResult, evaluate, parse_gate
from k31ctl.report.envelope import plain

if TYPE_CHECKING:
    from k31ctl.api.fetching import Downloaded
    from k31ctl.api.launching import Launch
    from k31ctl.api.runs import Held, Validated
    from k31ctl.bench.compare import Comparison
    from k31ctl.bench.events import Finished

# What makes the result of a value, by the value's class; imported where one is asked for.
MADE_BY: Final[Mapping[str, str]] = {
    "k31ctl.core.plan.Plan": "plan_document.result",
    "k31ctl.core.searched.Searched": "search.searched_result",
    "k31ctl.core.cold_start.ColdStart": "cold_start_text.cold_start_document",
    "k31ctl.core.disaggregation.Disaggregation": "disaggregation_document.disaggregation_document",
    "k31ctl.core.readiness.Readiness": "doctor.readiness_result",
    "k31ctl.fetch.inspection.Inspection": "inspect.inspection_result",
    "k31ctl.fetch.verify.Verification": "verify.verification_result",
    "k31ctl.fetch.licence_check.Terms": "licence.terms_result",
    "k31ctl.fetch.planning.FetchPlan": "fetch.planned_result",
    "k31ctl.fetch.part_plan.PartPlan": "fetch.planned_result",
    "k31ctl.bench.conformance.job.ConformanceEnded": "conformance.conformance_result",
}


def result_of(found: object) -> dict[str, Any]:
    """Return a result as mappings, lists, numbers and text: what ``--json`` has under ``result``.

    It is for every value that a function of this package returns, and raises TypeError for others.

    >>> result_of(plan("kimi-k3"))["capacity"]["block_tokens"]
    768
    """
    made: dict[str, Any] = plain(_named(found))
    return made


def gate(found: object, text: str) -> GateResult:
    """Return whether a condition such as ``tpot_s<=0.05`` holds of a result, and what it is.

    Of a search it is asked of the first recommendation, of a load of its best stage. Raises
    UsageError for text that is no condition, and for a name that is no number of the result.

    >>> gate(plan("kimi-k3"), "fits==true").passed
    True
    """
    names = result_of(found)
    if "recommended" in names:
        names = names["recommended"] or {}
    return evaluate(parse_gate(text), names)


def write_calibration(fit: SiteFit, path: str | Path) -> None:
    """Write the file that ``calibration=`` of ``plan`` takes, whole or not at all.

    Raises InputError where it cannot be written.
    """
    from k31ctl.report.calibration import calibration_yaml
    from k31ctl.report.files import write_whole

    write_whole(Path(path), calibration_yaml(fit.calibrated))


def _named(found: object) -> object:
    """The result of a value by name; the values inside are as they are."""
    if isinstance(found, tuple) and found:
        return _of_tuple(found)
    kind = f"{type(found).__module__}.{type(found).__qualname__}"
    if kind in _COMPOSED:
        return _COMPOSED[kind](found)
    if kind not in MADE_BY:
        raise TypeError(f"{type(found).__name__} is no result of a function of k31ctl")
    module, _, function = MADE_BY[kind].rpartition(".")
    make: Callable[[object], object] = getattr(import_module(f"k31ctl.report.{module}"), function)
    return make(found)


def _of_tuple(found: tuple[Any, ...]) -> object:
    """The result of several values of one kind: files of a lint, or steps of a smoke test."""
    match type(found[0]).__name__:
        case "LintedFile":
            from k31ctl.report.lint import lint_result

            return lint_result(found)
        case "Step":
            from k31ctl.report.smoke import smoke_result

            return smoke_result(found)
        case "Listed":
            return {"profiles": found}
        case name:
            raise TypeError(f"{name} is no result of a function of k31ctl")


def _downloaded(found: "Downloaded") -> object:
    from k31ctl.report.fetch import finished_result, planned_result

    return planned_result(found.plan) | finished_result(found.finished)


def _launch(found: "Launch") -> object:
    from k31ctl.report.serve import launch_result

    return launch_result(found.rollout, found.files, findings=found.findings, out=None)


def _measured(found: "Finished") -> object:
    from k31ctl.report.bench import bench_result, speaking

    return bench_result(found, speaking(found.stages))


def _held(found: "Held") -> object:
    from k31ctl.report.against import against_document

    return {"against": against_document(found.against, found.notes)}


def _compared(found: "Comparison") -> object:
    from k31ctl.report.bench_diff import diff_result

    return diff_result(found, None)


def _fitted(found: SiteFit) -> object:
    from k31ctl.report.calibration import calibration_result

    return calibration_result(found.calibrated)


def _validated(found: "Validated") -> object:
    from k31ctl.report.validation import validation_result

    return validation_result(found.validation, found.skipped)


_COMPOSED: Final[Mapping[str, Callable[[Any], object]]] = {
    "k31ctl.api.fetching.Downloaded": _downloaded,
    "k31ctl.api.launching.Launch": _launch,
    "k31ctl.api.runs.Held": _held,
    "k31ctl.api.runs.SiteFit": _fitted,
    "k31ctl.api.runs.Validated": _validated,
    "k31ctl.bench.compare.Comparison": _compared,
    "k31ctl.bench.events.Finished": _measured,
    "k31ctl.catalog.listing.Shown": lambda found: found.as_mapping(),
    "k31ctl.tiny.checkpoint.TinyCheckpoint": lambda found: found.made,
}
