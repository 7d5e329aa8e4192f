"""The options of ``plan``, and how their text becomes a request in base units."""

import re
from typing import Annotated

import typer

from k31ctl.core.kv_cache import IndexFormat, KvFormat, StateDtype
from k31ctl.core.offload import Tier
from k31ctl.errors import UsageError

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
