"""Arguments and options that more than one command takes, each declared once."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from k31ctl import units
from k31ctl.core.layout_rules import MOST_RANKS
from k31ctl.errors import UsageError

T = TypeVar("T")


class Lengths(tuple[int, ...]):
    """A comma list of token counts."""

    __slots__ = ()


class Counts(tuple[int, ...]):
    """A comma list of positive whole numbers."""

    __slots__ = ()


def said(name: str, read: Callable[[str], T]) -> Callable[[str], T]:
    """Return ``read`` with its complaint as a mistake in the option of this name."""

    def parser(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            what, _, remedy = str(error).partition("; ")
            raise UsageError(
                what, where=name, remedy=remedy or f"the command's --help explains {name}"
            ) from None

    return parser


def share(text: object) -> float:
    """Read a share, 0.5 or 50%; also of a number, as typer hands a default over."""
    written = str(text)
    try:
        number = float(written.removesuffix("%").replace("_", ""))
    except ValueError:
        raise ValueError(f"{written[:40]!r} is not a number; write 0.5 or 50%") from None
    return number / 100 if written.endswith("%") else number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= 10**9):
        raise ValueError(f"{text[:60]!r} is not a whole number from 1 to 1000000000; write 1,8,32")
    return int(text)


def _lengths(text: str) -> Lengths:
    return Lengths(units.parse_list(text, units.parse_tokens))


def parse_counts(text: str) -> Counts:
    """Read a comma list of positive whole numbers."""
    return Counts(units.parse_list(text, _count))


def gate_option(example: str) -> Any:
    """Return the option for conditions on a command's result, with one of its own."""
    return typer.Option(
        "--gate",
        metavar="EXPR",
        help=f"Exit 4 unless this holds, such as {example}.",
        rich_help_panel="Output",
    )


JsonOpt = Annotated[
    bool,
    typer.Option("--json", help="One JSON document on standard output.", rich_help_panel="Output"),
]
DebugOpt = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of a failure; goes anywhere.")
]
VersionOpt = Annotated[bool, typer.Option("--version", help="Show the version and exit.")]
ProfilesOpt = Annotated[
    list[Path] | None,
    typer.Option(
        "--profiles",
        metavar="DIR",
        help="A folder of profiles that go before ours.",
        rich_help_panel="Output",
    ),
]
HtmlOpt = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write the result as a page.", rich_help_panel="Output"
    ),
]
CsvOpt = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write the table as CSV.", rich_help_panel="Output"),
]
MarkdownOpt = Annotated[
    Path | None,
    typer.Option(
        "--markdown", metavar="FILE", help="Write the result as Markdown.", rich_help_panel="Output"
    ),
]
JunitOpt = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE",
        help="Write every condition as a test of JUnit XML.",
        rich_help_panel="Output",
    ),
]

ModelArg = Annotated[
    str,
    typer.Argument(
        metavar="[MODEL]", help="A model profile, a config.json or a checkpoint folder."
    ),
]
OnOpt = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="HARDWARE",
        help="A hardware profile, a file of one, or this.",
        rich_help_panel="Deployment",
    ),
]
NodesOpt = Annotated[
    int,
    typer.Option(
        "--nodes", min=1, max=MOST_RANKS, help="How many nodes.", rich_help_panel="Deployment"
    ),
]
TpOpt = Annotated[
    int | None,
    typer.Option("--tp", min=1, help="Ranks of tensor parallelism.", rich_help_panel="Layout"),
]
PpOpt = Annotated[
    int | None,
    typer.Option("--pp", min=1, help="Stages of pipeline parallelism.", rich_help_panel="Layout"),
]
DpOpt = Annotated[
    int | None,
    typer.Option("--dp", min=1, help="Ranks of data parallelism.", rich_help_panel="Layout"),
]
EpOpt = Annotated[
    int | None,
    typer.Option("--ep", min=1, help="Ranks of expert parallelism.", rich_help_panel="Layout"),
]
DcpOpt = Annotated[
    int | None,
    typer.Option(
        "--dcp", min=1, help="Ranks of decode-context parallelism.", rich_help_panel="Layout"
    ),
]
ContextOpt = Annotated[
    Lengths | None,
    typer.Option(
        "--context",
        metavar="TOKENS,...",
        parser=said("--context", _lengths),
        help="Such as 8k,1m.",
        rich_help_panel="Load",
    ),
]
BatchOpt = Annotated[
    Counts | None,
    typer.Option(
        "--batch",
        metavar="N,...",
        parser=said("--batch", parse_counts),
        help="Such as 1,8,32.",
        rich_help_panel="Load",
    ),
]
PromptTokensOpt = Annotated[
    int | None,
    typer.Option(
        "--prompt-tokens",
        metavar="TOKENS",
        parser=said("--prompt-tokens", units.parse_tokens),
        help="Tokens per prompt.",
        rich_help_panel="Load",
    ),
]
OutputTokensOpt = Annotated[
    int | None,
    typer.Option(
        "--output-tokens",
        metavar="TOKENS",
        parser=said("--output-tokens", units.parse_tokens),
        help="Tokens per answer.",
        rich_help_panel="Load",
    ),
]
KvMemoryOpt = Annotated[
    int | None,
    typer.Option(
        "--kv-memory",
        metavar="SIZE",
        parser=said("--kv-memory", units.parse_bytes),
        help="Cache per GPU, such as 42.23GiB.",
        rich_help_panel="Cache and memory",
    ),
]
MaxModelLenOpt = Annotated[
    int | None,
    typer.Option(
        "--max-model-len",
        metavar="TOKENS",
        parser=said("--max-model-len", units.parse_tokens),
        help="Longest context served.",
        rich_help_panel="Cache and memory",
    ),
]
