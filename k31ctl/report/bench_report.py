"""A record shown again: as a page, with a plan's prediction where one is given."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k31ctl.bench.planned import PlannedCurve
from k31ctl.report.files import STANDARD_OUTPUT, write_whole
from k31ctl.report.html_bench import bench_page


def show_report(document: Mapping[str, Any], planned: PlannedCurve | None, *, html: Path) -> None:
    """Write the page of a record, and say where it is."""
    write_whole(html, bench_page(document, planned))
    if html != STANDARD_OUTPUT:
        stages = len(document.get("stages") or ())
        sys.stdout.write(f"{html}: {stages} stages of {document['record']}\n")
