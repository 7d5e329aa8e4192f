"""What is wrong with a launch: one pure function over a context, and the rules that it asks."""

from k31ctl.core.rules.check import check
from k31ctl.core.rules.context import Container, FileKind, LaunchContext
from k31ctl.core.rules.finding import Change, Finding, Severity

__all__ = ["Change", "Container", "FileKind", "Finding", "LaunchContext", "Severity", "check"]
