"""The options of the embedded engine, which ``serve`` and ``smoke`` share."""

import os
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from k31ctl import units
from k31ctl.cli.options import said
from k31ctl.errors import InputError, UsageError

_PANEL: Final = "Embedded engine"
_MOST_KEY_BYTES: Final = 4096
API_KEY_VARIABLE: Final = "K31CTL_API_KEY"
LOOPBACK: Final = "127.0.0.1"
PORT: Final = 8000
# Parameters of ``serve`` that are this engine's alone, and those that it shares with others.
_OWN: Final = {
    *("host", "device", "dtype", "layers", "experts", "plain", "max_num_seqs", "kv_memory"),
    *("api_key_file", "experts_stored", "experts_ready"),
}
_SHARED: Final = {
    *("model", "engine", "max_model_len", "served_name", "port", "profiles", "as_json"),
}


class Dtype(StrEnum):
    """What the embedded engine computes in."""

    FLOAT32 = "float32"
    BF16 = "bf16"


class ExpertForm(StrEnum):
    """How the embedded engine holds MXFP4 experts."""

    PACKED = "packed"
    PLAIN = "plain"
    STREAMED = "streamed"


class LayerRange(tuple[int, int]):
    """First and last layer, both counted from 0."""

    __slots__ = ()


def _layers(text: str) -> LayerRange:
    first, dash, last = text.strip().partition("-")
    numbers = (first, last if dash else first)
    if not all(part.isascii() and part.isdigit() and len(part) <= 4 for part in numbers):  # noqa: PLR2004
        raise ValueError(f"{text[:60]!r} is not a range of layers; write 0-3, counted from 0")
    found = LayerRange(map(int, numbers))
    if found[0] > found[1]:
        raise ValueError(f"{text[:60]!r} ends before it begins; write 0-3, counted from 0")
    return found


def as_range(layers: LayerRange | None) -> range | None:
    """The layers as a range; None where all are meant."""
    return None if layers is None else range(layers[0], layers[1] + 1)


DeviceOpt = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="cpu or cuda:N; several take stages.",
        rich_help_panel=_PANEL,
    ),
]
DtypeOpt = Annotated[
    Dtype | None,
    typer.Option("--dtype", help="What to compute in.", rich_help_panel=_PANEL),
]
LayersOpt = Annotated[
    LayerRange | None,
    typer.Option(
        "--layers",
        metavar="A-B",
        parser=said("--layers", _layers),
        help="Only these layers, from 0.",
        rich_help_panel=_PANEL,
    ),
]
ExpertsOpt = Annotated[
    ExpertForm | None,
    typer.Option("--experts", help="How to hold experts.", rich_help_panel=_PANEL),
]
ExpertsStoredOpt = Annotated[
    int | None,
    typer.Option(
        "--experts-stored",
        metavar="SIZE",
        parser=said("--experts-stored", units.parse_bytes),
        help="Most of streamed ones, as in the files.",
        rich_help_panel=_PANEL,
    ),
]
ExpertsReadyOpt = Annotated[
    int | None,
    typer.Option(
        "--experts-ready",
        metavar="SIZE",
        parser=said("--experts-ready", units.parse_bytes),
        help="Most of streamed ones, ready on a device.",
        rich_help_panel=_PANEL,
    ),
]
PlainOpt = Annotated[
    bool,
    typer.Option("--plain", help="Plain torch, no faster path.", rich_help_panel=_PANEL),
]
HostOpt = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="Where to listen.", rich_help_panel=_PANEL),
]
MaxNumSeqsOpt = Annotated[
    int,
    typer.Option(
        "--max-num-seqs", min=1, max=4096, help="Requests at once.", rich_help_panel=_PANEL
    ),
]
ApiKeyFileOpt = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        metavar="FILE",
        help=f"Holds the key; else ${API_KEY_VARIABLE}.",
        rich_help_panel=_PANEL,
    ),
]


def refuse_others(said: Collection[str]) -> None:
    """Refuse options of ``serve`` that only launch files of other engines have."""
    others = sorted(set(said) - _OWN - _SHARED)
    if others:
        raise UsageError(
            "the embedded engine starts here, on one machine, and has no such option",
            where=", ".join(_flag(name) for name in others),
            remedy="leave it out; k31ctl serve --help has a panel of its options",
        )


def refuse_own(said: Collection[str], port: int | None) -> None:
    """Refuse what only the embedded engine has."""
    own = [_flag(name) for name in sorted(_OWN & set(said))]
    if port == 0:
        own.append("--port 0")
    if own:
        raise UsageError(
            "this is an option of the embedded engine, and another is asked for",
            where=", ".join(own),
            remedy="add --engine embedded, or leave it out",
        )


def _flag(name: str) -> str:
    """A parameter as it is typed."""
    return {"target": "--as", "execute": "--exec"}.get(name, f"--{name.replace('_', '-')}")


def api_key(file: Path | None) -> str | None:
    """The key from its file, else from the environment; None where neither is given."""
    if file is None:
        return os.environ.get(API_KEY_VARIABLE) or None
    try:
        with file.open("rb") as stream:  # a pipe as well: --api-key-file <(command)
            key = stream.read(_MOST_KEY_BYTES + 1).decode().strip()
    except (OSError, UnicodeDecodeError):
        key = ""
    if not key or len(key) > _MOST_KEY_BYTES or not (key.isascii() and key.isprintable()):
        raise InputError(
            "holds no key that can be read",
            where=f"--api-key-file {file}",
            remedy="write the key into it, on one line",
        )
    return key
