"""The folder of the weights, asked for by a process that may be left behind."""

import sys
from pathlib import Path
from typing import Any, Final

from k31ctl.core.host import DiskRead, WeightsFolder, Why
from k31ctl.host.probe import Missed, Probe
from k31ctl.host.system import filesystem_of
from k31ctl.outside_json import parsed

WEIGHTS_CHILD: Final = Path(__file__).with_name("weights_child.py")


def weights(probe: Probe, folder: Path) -> WeightsFolder:
    """Room, files and measured read speed of a folder; raises Missed where it cannot be read."""
    try:
        told = probe.run(sys.executable, "-I", "-S", "-B", str(WEIGHTS_CHILD), str(folder))
        found: Any = parsed(told)
    except Missed as missed:
        why = "does not answer in time" if missed.kind is Why.SLOW else missed.why.split(": ")[-1]
        raise Missed(missed.kind, f"{folder}: {why}") from None
    except ValueError:
        raise Missed(Why.FAILED, f"{folder}: cannot be read") from None
    try:
        filesystem = filesystem_of(found["folder"], probe.text("/proc/self/mounts"))
    except Missed:
        filesystem = ""
    read = found.get("read")
    return WeightsFolder(
        folder=str(found["folder"]),
        filesystem=filesystem,
        free_bytes=int(found["free_bytes"]),
        present_bytes=int(found["present_bytes"]),
        num_files=int(found["num_files"]),
        read=DiskRead(**read) if read else None,
        unread=str(found.get("unread", "")),
    )
