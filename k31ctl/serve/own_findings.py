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

STARTS_NOTHING = ("README.md", "prometheus.yaml", "router.sh")


def _content(file: LaunchFile) -> bytes:
    return file.text.encode("utf-8", "surrogateescape")


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
    asked = Asked(
        engine=f"{gathered.catalog.engine}@{version}",
        hardware=gathered.node.id,
        node=gathered.node,
        nodes=made.servers[0].num_nodes if len(made.servers) == 1 else 0,
        model=gathered.spec,
    )
    linted = [
        lint(store, found, asked, name=file.path)
        for file in files
        if file.path not in STARTS_NOTHING and not file.path.endswith(".sbatch")
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
