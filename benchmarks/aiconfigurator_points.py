"""Points that aiconfigurator answers, one JSON document a line.

``against_aiconfigurator.py`` starts this file with an interpreter that has aiconfigurator. A list
of calls comes on standard input; the first line of the answer holds the version and the seconds of
the import, each further one the result of a call, or why there is none.
"""

import json
import logging
import os
import sys
import time
import warnings
from importlib.metadata import version
from typing import IO, Any


def apart_from_chatter() -> IO[str]:
    """Standard output as it was; what a library prints goes to standard error from now on."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def main() -> None:
    """Answer every call."""
    answers = apart_from_chatter()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    calls: list[dict[str, Any]] = json.load(sys.stdin)
    start = time.perf_counter()
    from aiconfigurator.cli.api import cli_estimate  # noqa: PLC0415 - its import is timed

    head = {"version": version("aiconfigurator"), "seconds": time.perf_counter() - start}
    answers.write(json.dumps(head) + "\n")
    for call in calls:
        start = time.perf_counter()
        found: dict[str, Any]
        try:
            result = cli_estimate(**call)
        except Exception as error:  # noqa: BLE001 - whatever a point raises is its answer
            words = " ".join(str(error).split())
            found = {"refused": f"{type(error).__name__}: {words}"}
        else:
            raw = result.raw
            found = {
                "data": f"{result.backend_name} {result.backend_version}",
                "warning": result.kv_cache_warning or "",
                "requests_per_s": float(raw["seq/s"]),
                "tok_s": float(raw["tokens/s"]),
                "tok_s_per_user": float(raw["tokens/s/user"]),
                "tpot_ms": float(result.tpot),
                "ttft_ms": float(result.ttft),
            }
        answers.write(json.dumps(found | {"seconds": time.perf_counter() - start}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
