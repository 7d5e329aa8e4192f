"""What the checks of ``lint`` say about files that were just made."""

from collections.abc import Sequence

from k31ctl.catalog.store import Store
from k31ctl.core.launch import Form
from k31ctl.core.launch_form import find_call
from k31ctl.core.rules import Finding, Severity
from k31ctl.errors import RefusedError
from k31ctl.serve.files import LaunchFile
from k31ctl.serve.gather import Gathered
from k31ctl.serve.lint import Asked, all_findings, lint
from k31ctl.serve.read.launch_file import launches_in
from k31ctl.serve.read.source import source_of
from k31ctl.serve.rollout import Rollout

_BESIDE = ("README.md", "prometheus.yaml", "router.sh", "router.compose.yaml")
_OTHERS = (".sbatch", "-router.service")


def starts_engine(file: LaunchFile) -> bool:
    """Whether a file starts an engine itself; a router and a batch script start others."""
    return file.path not in _BESIDE and not file.path.endswith(_OTHERS)


def _content(file: LaunchFile) -> bytes:
    return file.text.encode("utf-8", "surrogateescape")


def _nodes(made: Rollout, file: LaunchFile) -> int:
    """Nodes of the server that a file starts; 0 where one file starts several servers."""
    if len(made.servers) == 1:
        return made.servers[0].num_nodes
    own = [server.num_nodes for server in made.servers if server.name in file.path]
    return own[0] if len(own) == 1 else 0


def _is_router(words: Sequence[str]) -> bool:
    call = find_call(words)
    return call is not None and call.form is Form.SGLANG_ROUTER


def own_findings(
    store: Store, gathered: Gathered, files: Sequence[LaunchFile], made: Rollout
) -> tuple[Finding, ...]:
    """Return every finding in files that start something, each once.

    An image that is taken to be as a branch is checked as that branch.
    """
    engine = gathered.engine
    version = engine.version if engine.development else gathered.version

    def asked(file: LaunchFile) -> Asked:
        return Asked(
            engine=f"{gathered.catalog.engine}@{version}",
            hardware=gathered.node.id,
            node=gathered.node,
            nodes=_nodes(made, file),
            model=gathered.spec,
        )

    linted = [
        lint(store, found, asked(file), name=file.path)
        for file in files
        if starts_engine(file)
        for found in launches_in(source_of(_content(file), name=file.path))
        if not _is_router(found.texts)
    ]
    return tuple(all_findings(linted))


def refuse_errors(findings: Sequence[Finding]) -> None:
    """Raise RefusedError where the checks find an error in what was made."""
    for finding in findings:
        if finding.severity is Severity.ERROR:
            raise RefusedError(
                finding.message,
                where=finding.where,
                remedy=f"{finding.remedy}, or add --force to have the files as they are",
                rule=finding.id,
                source=finding.source,
            )
