"""The options of ``plan``, and how their text becomes a request in base units."""

import re
from typing import Annotated

import typer

from k31ctl.core.kv_cache import IndexFormat, KvFormat, StateDtype
from k31ctl.core.offload import Tier
from k31ctl.errors import UsageError

MOST_CELLS = 10_000
MOST_ENTRIES = 1_000
_IMAGE = re.compile(r"([0-9]{1,6})x([0-9]{1,6})")

EngineOpt = Annotated[
    str,
    typer.Option(
        "--engine",
        metavar="NAME[@VERSION]",
        help="vllm, sglang, tokenspeed, tensorrt-llm or embedded.",
        rich_help_panel="Deployment",
    ),
]
KvDtypeOpt = Annotated[
    KvFormat | None,
    typer.Option(
        "--kv-dtype",
        help="Type of cached latents; engine default.",
        rich_help_panel="Cache and memory",
    ),
]
IndexDtypeOpt = Annotated[
    IndexFormat | None,
    typer.Option(
        "--index-dtype",
        help="Type of index keys; engine default.",
        rich_help_panel="Cache and memory",
    ),
]
StateDtypeOpt = Annotated[
    StateDtype,
    typer.Option(
        "--state-dtype",
        help="Type of the recurrent state of KDA.",
        rich_help_panel="Cache and memory",
    ),
]
PrefixCachingOpt = Annotated[
    bool,
    typer.Option(
        "--prefix-caching/--no-prefix-caching",
        help="Keep states for prefixes that return.",
        rich_help_panel="Cache and memory",
    ),
]
DraftOpt = Annotated[
    str | None,
    typer.Option(
        "--draft",
        metavar="NAME",
        help="A profile of a draft model.",
        rich_help_panel="Cache and memory",
    ),
]
DraftTokensOpt = Annotated[
    int | None,
    typer.Option(
        "--draft-tokens",
        min=0,
        max=64,
        help="Tokens drafted in a step.",
        rich_help_panel="Cache and memory",
    ),
]
ReplayOpt = Annotated[
    bool,
    typer.Option(
        "--replay-ssm",
        help="Drafts replay KDA states instead of keeping them.",
        rich_help_panel="Cache and memory",
    ),
]
StateSlotsOpt = Annotated[
    int | None,
    typer.Option(
        "--state-slots",
        min=1,
        max=64,
        help="KDA states kept for a request; engine default.",
        rich_help_panel="Cache and memory",
    ),
]
ChunkTokensOpt = Annotated[
    int | None,
    typer.Option(
        "--chunk-tokens",
        min=1,
        max=1 << 24,
        help="Tokens of a prefill chunk.",
        rich_help_panel="Cache and memory",
    ),
]
MemoryFractionOpt = Annotated[
    float | None,
    typer.Option(
        "--memory-fraction",
        help="Share of each GPU that the engine may use.",
        rich_help_panel="Cache and memory",
    ),
]
StateRatioOpt = Annotated[
    float | None,
    typer.Option(
        "--state-ratio",
        help="SGLang's ratio of state memory to KV memory.",
        rich_help_panel="Cache and memory",
    ),
]
TextOnlyOpt = Annotated[
    bool,
    typer.Option(
        "--text-only",
        help="Leave the image encoder's workspace out.",
        rich_help_panel="Cache and memory",
    ),
]
ImageOpt = Annotated[
    str | None,
    typer.Option(
        "--image",
        metavar="WxH",
        help="Count the tokens of an image of this size.",
        rich_help_panel="Cache and memory",
    ),
]
LoraOpt = Annotated[
    int | None,
    typer.Option(
        "--lora",
        metavar="RANK",
        min=1,
        max=65_536,
        help="Add LoRA training state.",
        rich_help_panel="Beyond serving",
    ),
]
OffloadOpt = Annotated[
    Tier | None,
    typer.Option(
        "--offload",
        help="Keep experts in host memory or on local disks.",
        rich_help_panel="Beyond serving",
    ),
]
ResidentOpt = Annotated[
    int | None,
    typer.Option(
        "--resident-experts",
        min=0,
        help="Experts a layer keeps on the GPUs.",
        rich_help_panel="Beyond serving",
    ),
]


def image_size(text: str | None) -> tuple[int, int] | None:
    """Width and height of ``1920x1080``; raises UsageError where it is no size."""
    if text is None:
        return None
    found = _IMAGE.fullmatch(text)
    if found is None or "0" in (found[1].lstrip("0") or "0", found[2].lstrip("0") or "0"):
        raise UsageError(
            f"{text[:40]!r} is not the size of an image",
            where="--image",
            remedy="write width and height in pixels, such as 1920x1080",
        )
    return int(found[1]), int(found[2])


def checked_cells(contexts: tuple[int, ...], batches: tuple[int, ...]) -> None:
    """Refuse longer lists, and more cells, than a table is good for."""
    for name, entries in (("--context", contexts), ("--batch", batches)):
        if len(entries) > MOST_ENTRIES:
            raise UsageError(
                f"{len(entries)} entries are more than {MOST_ENTRIES}",
                where=name,
                remedy=f"give {name} a shorter list",
            )
    if len(contexts) * len(batches) > MOST_CELLS:
        raise UsageError(
            f"{len(contexts)} contexts at {len(batches)} batch sizes are more than "
            f"{MOST_CELLS} cells",
            where="--context, --batch",
            remedy="ask for fewer of either",
        )


def checked_ratio(name: str, value: float | None, *, most: float) -> None:
    """Refuse a number that is not positive and finite."""
    if value is not None and not 0 < value <= most:
        raise UsageError(
            f"{value} is not between 0 and {most:g}",
            where=name,
            remedy=f"give {name} a number such as {min(0.9, most):g}",
        )


def checked_companions(
    *, kv_memory: int | None, offload: Tier | None, resident_experts: int | None
) -> None:
    """Refuse a cache of no bytes, and a count of resident experts where none leave."""
    if kv_memory == 0:
        raise UsageError(
            "a cache of 0 bytes holds nothing",
            where="--kv-memory",
            remedy="give it a size such as 42.23GiB, or leave it out",
        )
    if resident_experts is not None and offload is None:
        raise UsageError(
            f"{resident_experts} experts can only stay where the others leave",
            where="--resident-experts",
            remedy="add --offload host or --offload nvme",
        )
