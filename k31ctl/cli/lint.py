"""``k31ctl lint``: what is wrong with a launch that people already have."""

from enum import StrEnum
from typing import Annotated

import typer

from k31ctl.cli.options import JsonOpt, MarkdownOpt, ProfilesOpt, gate_option


class Format(StrEnum):
    """How findings are written."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    GITLAB = "gitlab"


FilesArg = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE... | -- COMMAND...",
        help="Scripts, Compose files, manifests, units; or a command.",
    ),
]
LintEngineOpt = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME[@VERSION]",
        help="The release that runs it, where the file names none.",
        rich_help_panel="Deployment",
    ),
]
LintOnOpt = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="HARDWARE",
        help="A hardware profile, or this.",
        rich_help_panel="Deployment",
    ),
]
LintNodesOpt = Annotated[
    int | None,
    typer.Option(
        "--nodes",
        min=1,
        max=4096,
        show_default=False,
        help="How many nodes; as the file says.",
        rich_help_panel="Deployment",
    ),
]
LintModelOpt = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="The model, where its path does not name it.",
        rich_help_panel="Deployment",
    ),
]
ReadbackOpt = Annotated[
    str,
    typer.Option(
        "--readback",
        metavar="URL",
        help="Ask a running server whether it is this launch.",
        rich_help_panel="Deployment",
    ),
]
FixOpt = Annotated[
    bool,
    typer.Option(
        "--fix",
        help="Write the changes that are certain into the files.",
        rich_help_panel="Output",
    ),
]
IgnoreOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--ignore",
        metavar="RULE",
        help="Do not count this rule; may be repeated.",
        rich_help_panel="Output",
    ),
]
OnlyLaunchesOpt = Annotated[
    bool,
    typer.Option(
        "--only-launches",
        help="Pass over files that start no engine.",
        rich_help_panel="Deployment",
    ),
]
FormatOpt = Annotated[
    Format,
    typer.Option("--format", help="How findings are written.", rich_help_panel="Output"),
]


def lint(
    files: FilesArg = None,
    *,
    on: LintOnOpt = "",
    engine: LintEngineOpt = "",
    nodes: LintNodesOpt = None,
    model: LintModelOpt = "",
    readback: ReadbackOpt = "",
    only_launches: OnlyLaunchesOpt = False,
    fix: FixOpt = False,
    ignore: IgnoreOpt = None,
    output: FormatOpt = Format.TEXT,
    as_json: JsonOpt = False,
    markdown: MarkdownOpt = None,
    gate: Annotated[list[str] | None, gate_option("warnings==0")] = None,
    profiles: ProfilesOpt = None,
) -> None:
    """Check launch files, or a command, against what the engine of this version really accepts.

    Nothing is run. Exit code 4 means that there are errors.

    k31ctl lint launch.sh --on 8x-b300

    k31ctl lint compose.yaml deployment.yaml --engine sglang@0.5.23 --fix

    k31ctl lint --on 8x-h200 --nodes 2 -- vllm serve moonshotai/Kimi-K3 -tp 16
    """
    from k31ctl.api.given import store_of
    from k31ctl.api.linting import lint_wish
    from k31ctl.core.gates import parse_gate
    from k31ctl.report.lint import require_no_errors, show_lint
    from k31ctl.serve.lint_files import lint_files

    store = store_of(profiles or ())
    gates = tuple(parse_gate(text) for text in gate or ())
    asked = lint_wish(
        store,
        on=on,
        engine=engine,
        nodes=nodes,
        model=model,
        readback=readback,
        ignore=ignore or (),
        only_launches=only_launches,
    )
    found = lint_files(store, files or (), asked)
    show_lint(
        found,
        asked=asked,
        output=Format.JSON if as_json else output,
        markdown=markdown,
        fix=fix,
        gates=gates,
    )
    require_no_errors(found, gates)
