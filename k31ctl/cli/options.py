"""Arguments and options that more than one command takes, each declared once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from k31ctl import units
from k31ctl.core.layout_rules import MOST_RANKS
from k31ctl.errors import UsageError
from k31ctl.report.files import STANDARD_OUTPUT

T = TypeVar("T")


class Lengths(tuple[int, ...]):
    """A comma list of token counts."""

    __slots__ = ()


class Counts(tuple[int, ...]):
    """A comma list of positive whole numbers."""

    __slots__ = ()


def _said(name: str, read: Callable[[str], T]) -> Callable[[str], T]:
    """Return ``read`` with its complaint as a mistake in the option of this name."""

    def parser(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            what, _, remedy = str(error).partition("; ")
            raise UsageError(
                what, where=name, remedy=remedy or f"k31ctl plan --help explains {name}"
            ) from None

    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= 10**9):
        raise ValueError(f"{text[:60]!r} is not a whole number from 1 to 1000000000; write 1,8,32")
    return int(text)


def _lengths(text: str) -> Lengths:
    return Lengths(units.parse_list(text, units.parse_tokens))


def _counts(text: str) -> Counts:
    return Counts(units.parse_list(text, _count))


JsonOpt = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
DebugOpt = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of a failure; goes anywhere.")
]
VersionOpt = Annotated[bool, typer.Option("--version", help="Show the version and exit.")]
ProfilesOpt = Annotated[
    list[Path] | None,
    typer.Option("--profiles", metavar="DIR", help="A folder of profiles that go before ours."),
]
GateOpt = Annotated[
    list[str] | None,
    typer.Option("--gate", metavar="EXPR", help="Exit 4 unless this holds, such as fits==true."),
]
HtmlOpt = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write the result as a page.")
]
CsvOpt = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write the table as CSV.")
]
MarkdownOpt = Annotated[
    Path | None, typer.Option("--markdown", metavar="FILE", help="Write the result as Markdown.")
]

ModelArg = Annotated[
    str,
    typer.Argument(
        metavar="[MODEL]", help="A model profile, a config.json or a checkpoint folder."
    ),
]
OnOpt = Annotated[
    str, typer.Option("--on", metavar="HARDWARE", help="A hardware profile, or this.")
]
NodesOpt = Annotated[int, typer.Option("--nodes", min=1, max=MOST_RANKS, help="How many nodes.")]
TpOpt = Annotated[int | None, typer.Option("--tp", min=1, help="Ranks of tensor parallelism.")]
PpOpt = Annotated[int | None, typer.Option("--pp", min=1, help="Stages of pipeline parallelism.")]
DpOpt = Annotated[int | None, typer.Option("--dp", min=1, help="Ranks of data parallelism.")]
EpOpt = Annotated[int | None, typer.Option("--ep", min=1, help="Ranks of expert parallelism.")]
DcpOpt = Annotated[
    int | None, typer.Option("--dcp", min=1, help="Ranks of decode-context parallelism.")
]
ContextOpt = Annotated[
    Lengths | None,
    typer.Option(
        "--context",
        metavar="TOKENS,...",
        parser=_said("--context", _lengths),
        help="Such as 8k,1m.",
    ),
]
BatchOpt = Annotated[
    Counts | None,
    typer.Option(
        "--batch", metavar="N,...", parser=_said("--batch", _counts), help="Such as 1,8,32."
    ),
]
PromptTokensOpt = Annotated[
    int | None,
    typer.Option(
        "--prompt-tokens",
        metavar="TOKENS",
        parser=_said("--prompt-tokens", units.parse_tokens),
        help="Tokens per prompt.",
    ),
]
OutputTokensOpt = Annotated[
    int | None,
    typer.Option(
        "--output-tokens",
        metavar="TOKENS",
        parser=_said("--output-tokens", units.parse_tokens),
        help="Tokens per answer.",
    ),
]
KvMemoryOpt = Annotated[
    int | None,
    typer.Option(
        "--kv-memory",
        metavar="SIZE",
        parser=_said("--kv-memory", units.parse_bytes),
        help="Cache per GPU, such as 42.23GiB.",
    ),
]
MaxModelLenOpt = Annotated[
    int | None,
    typer.Option(
        "--max-model-len",
        metavar="TOKENS",
        parser=_said("--max-model-len", units.parse_tokens),
        help="Longest context served.",
    ),
]


def checked_outputs(as_json: bool, files: Mapping[str, Path | None]) -> None:
    """Refuse two answers in one place, be it standard output or one file."""
    taken = {STANDARD_OUTPUT: "--json"} if as_json else {}
    for name, path in files.items():
        if path is None:
            continue
        place = path if path == STANDARD_OUTPUT else path.absolute()
        if place in taken:
            raise UsageError(
                f"{taken[place]} and {name} would both be written to "
                f"{'standard output' if path == STANDARD_OUTPUT else path}",
                where=f"{name} {path}",
                remedy=f"give {name} a file of its own",
            )
        taken[place] = name
