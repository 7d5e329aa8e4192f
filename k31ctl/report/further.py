"""Answers beside a plan: as blocks of text and as parts of the document.

What they need is imported only where there is such an answer.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from k31ctl.core.further import Further


def further_blocks(found: "Further") -> list[list[str]]:
    """A block of lines for each answer."""
    blocks = []
    if found.cold_start is not None:
        from k31ctl.report.cold_start_text import cold_start_text  # noqa: PLC0415

        blocks.append(cold_start_text(found.cold_start))
    if found.pools is not None:
        from k31ctl.report.disaggregation_text import disaggregation_text  # noqa: PLC0415

        blocks.append(disaggregation_text(found.pools))
    return blocks


def further_document(found: "Further") -> dict[str, Any]:
    """``cold_start`` and ``disaggregation``, each where it was asked for."""
    values: dict[str, Any] = {}
    if found.cold_start is not None:
        from k31ctl.report.cold_start_text import cold_start_document  # noqa: PLC0415

        values["cold_start"] = cold_start_document(found.cold_start)
    if found.pools is not None:
        from k31ctl.report.disaggregation_document import disaggregation_document  # noqa: PLC0415

        values["disaggregation"] = disaggregation_document(found.pools)
    return values
