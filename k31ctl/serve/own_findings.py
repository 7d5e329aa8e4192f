"""What the checks of ``lint`` say about files that were just made."""

from collections.abc import Sequence

from k31ctl.catalog.store import Store
from k31ctl.core.rules import Finding
from k31ctl.serve.files import LaunchFile
from k31ctl.serve.gather import Gathered
from k31ctl.serve.lint import Asked, all_findings, lint
from k31ctl.serve.read.launch_file import launches_in
from k31ctl.serve.read.source import source_of

_STARTS_NOTHING = ("README.md", "prometheus.yaml", "router.sh")


def _content(file: LaunchFile) -> bytes:
    return file.text.encode("utf-8", "surrogateescape")


def own_findings(
    store: Store, gathered: Gathered, files: Sequence[LaunchFile], *, nodes: int
) -> tuple[Finding, ...]:
    """Return every finding in files that start something, each once."""
    asked = Asked(
        engine=f"{gathered.catalog.engine}@{gathered.version}",
        hardware=gathered.node.id,
        node=gathered.node,
        nodes=nodes,
        model=gathered.model.id,
    )
    linted = [
        lint(store, found, asked, name=file.path)
        for file in files
        if file.path not in _STARTS_NOTHING and not file.path.endswith(".sbatch")
        for found in launches_in(source_of(_content(file), name=file.path))
    ]
    return tuple(all_findings(linted))
