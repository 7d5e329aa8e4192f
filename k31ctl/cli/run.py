"""A launch started on this machine, watched until it ends or is interrupted."""

from typing import TYPE_CHECKING

from k31ctl.host.child import Child, served_models
from k31ctl.report.run import show_run

if TYPE_CHECKING:
    from k31ctl.serve.rollout import Rollout


def run_here(made: "Rollout", script: str) -> None:
    """Run the script of one node; whatever ends this ends the server and its children too."""
    child = Child(("bash", "-c", script, "launch.sh"))
    try:
        show_run(
            made,
            child.lines(),
            models=lambda: served_models(made.servers[0].port),
            ended=child.ended,
        )
    finally:
        child.stop()
