"""A tiny random checkpoint of the real architecture: every kind of layer, a few megabytes."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.models import load_config_profile
from k31ctl.catalog.store import Store
from k31ctl.core.architecture import model_from_config
from k31ctl.core.figure import Assumption
from k31ctl.core.model import Model
from k31ctl.core.tensors import TensorTemplate
from k31ctl.errors import InputError, UsageError
from k31ctl.tiny.tokenizer import (
    BOS,
    END_OF_MESSAGE,
    MEDIA_PAD,
    PAD,
    special_id,
    tokenizer_files,
    vocab_size,
)
from k31ctl.tiny.values import random_bytes
from k31ctl.values import frozen

# What a user may ask for, and the profile whose architecture it is.
PROFILES: Final = {
    "kimi-k3.1-pro": "kimi-k3.1-pro",
    "kimi-k3": "kimi-k3",
    "kimi-linear": "kimi-linear-48b",
}
_NUM_SHARDS: Final = 2
_FULL: Final = [4, 6]
# Sizes alone: which parts there are, and how they are computed, stays the profile's.
_TEXT: Final[dict[str, Any]] = {
    **{"num_hidden_layers": 6, "hidden_size": 128, "intermediate_size": 256},
    **{"num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 64},
    **{"qk_nope_head_dim": 32, "qk_rope_head_dim": 16, "v_head_dim": 32},
    **{"num_experts": 8, "moe_intermediate_size": 64},
}
_LINEAR: Final = {
    **{"full_attn_layers": _FULL, "kda_layers": [1, 2, 3, 5], "num_heads": 4, "head_dim": 32},
}
# Two blocks, so two snapshots; three of eight experts; 16 tokens of any longer context.
_IF_THERE: Final[dict[str, Any]] = {
    **{"q_lora_rank": 64, "routed_expert_hidden_size": 64, "attn_res_block_size": 3},
    **{"num_experts_per_token": 3, "num_experts_per_tok": 3, "head_dim": 32},
}
_SPARSE: Final = {"index_n_heads": 8, "index_head_dim": 32, "index_topk": 16, "layers": _FULL}
_VISION: Final[dict[str, Any]] = {
    **{"vt_hidden_size": 64, "vt_intermediate_size": 128, "vt_num_hidden_layers": 2},
    **{"vt_num_attention_heads": 4, "qkv_hidden_size": 64, "mm_hidden_size": 64},
    **{"init_pos_emb_height": 16, "init_pos_emb_width": 16, "text_hidden_size": 128},
}
# As the release's processor has them.
_IMAGES: Final = {
    **{"patch_size": 14, "merge_kernel_size": 2, "fixed_output_tokens": None},
    **{"in_patch_limit": 65536, "patch_limit_on_one_side": 512},
    **{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]},
}


@frozen
class Made:
    """What a tiny checkpoint is made of."""

    architecture: str
    files: tuple[str, ...]
    num_tensors: int
    total_bytes: int
    total_params: int
    vocab_size: int
    num_linear_layers: int
    num_full_layers: int
    index_topk: int | None
    num_dense_layers: int
    num_moe_layers: int
    num_experts: int
    num_experts_per_tok: int
    expert_format: str
    num_snapshots: int
    num_vision_layers: int
    assumptions: tuple[Assumption, ...]


@frozen
class TinyCheckpoint:
    """What was asked for, and what was written."""

    folder: Path
    model: str
    seed: int
    made: Made


def write_tiny(store: Store, folder: Path, *, model: str, seed: int) -> TinyCheckpoint:
    """Write a checkpoint into a new or empty folder; the same arguments give the same bytes.

    Raises InputError where the folder holds something or cannot be made; then nothing is left.
    """
    if model not in PROFILES:
        raise UsageError(
            f"{model[:60]!r} is no model to make small",
            where="--model",
            remedy=f"choose one of {', '.join(PROFILES)}",
        )
    config = tiny_config(load_config_profile(store, PROFILES[model]))
    shape = model_from_config(config, model_id=model, name=model, where=f"tiny {model}")
    try:
        _refuse_filled(folder)
        names = _placed(folder, lambda work: _write_files(work, config, shape, seed))
    except OSError as error:
        raise InputError(
            f"cannot be written: {(error.strerror or 'failed').lower()}",
            where=str(folder),
            remedy="name a new folder in a place that you may write to",
        ) from error
    return TinyCheckpoint(folder=folder, model=model, seed=seed, made=_made(config, shape, names))


def tiny_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """A release's configuration with small sizes and the ids of the small tokenizer."""
    found: dict[str, Any] = json.loads(json.dumps(config))
    text = found.get("text_config", found)
    text |= _TEXT | {name: size for name, size in _IF_THERE.items() if text.get(name)}
    text["linear_attn_config"] |= _LINEAR
    if "dsa_config" in text:
        text["dsa_config"] |= _SPARSE
    if "vision_config" in found:
        found["vision_config"] |= _VISION
        found["media_placeholder_token_id"] = special_id(MEDIA_PAD)
    ids = {"bos_token_id": BOS, "eos_token_id": END_OF_MESSAGE, "pad_token_id": PAD}
    for part in (found, text):
        part |= {name: special_id(offset) for name, offset in ids.items()}
    text["vocab_size"] = vocab_size()
    return found


def _placed(folder: Path, write: Callable[[Path], None]) -> tuple[str, ...]:
    """Write files under another name first, then bring all of them to their place."""
    is_there = folder.is_dir()
    place = folder if is_there else folder.parent
    place.mkdir(parents=True, exist_ok=True)
    work = place / f".{folder.name}.{os.getpid()}"
    work.mkdir()
    try:
        write(work)
        names = tuple(sorted(path.name for path in work.iterdir()))
        if not is_there:
            work.replace(folder)
        for name in names if is_there else ():  # an empty folder stays the folder it is
            (work / name).replace(folder / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return names


def _refuse_filled(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        raise InputError(
            "there is something here already",
            where=str(folder),
            remedy="name a folder that does not exist, or an empty one",
        )


def _write_files(folder: Path, config: dict[str, Any], shape: Model, seed: int) -> None:
    generation = {name: config[name] for name in config if name.endswith("_token_id")}
    generation.pop("media_placeholder_token_id", None)
    generation |= {"do_sample": True, "temperature": 1.0, "top_p": 1.0}
    weight_map: dict[str, str] = {}
    draw, total = random.Random(seed), 0
    for number, tensors in enumerate(_shards(shape), start=1):
        name = f"model-{number:05}-of-{_NUM_SHARDS:06}.safetensors"
        content = {each: random_bytes(template, each, draw) for each, template in tensors.items()}
        (folder / name).write_bytes(_safetensors(tensors, content))
        weight_map |= dict.fromkeys(tensors, name)
        total += sum(map(len, content.values()))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    documents: dict[str, Any] = {
        "config.json": config,
        "generation_config.json": generation,
        "model.safetensors.index.json": index,
    }
    if "vision_config" in config:
        documents["preprocessor_config.json"] = {"media_proc_cfg": _IMAGES}
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")
    for name, text in tokenizer_files().items():
        (folder / name).write_text(text)


def _shards(shape: Model) -> Iterator[dict[str, TensorTemplate]]:
    """The first half of the layers, then everything else; an expert's tensors lie together."""
    middle = shape.num_layers // _NUM_SHARDS
    first: dict[str, TensorTemplate] = {}
    rest: dict[str, TensorTemplate] = {}
    for layer in range(shape.num_layers):
        part = [t for t in shape.templates if layer in t.layers]
        shard = first if layer < middle else rest
        for t in part:
            if not t.num_experts:
                shard[t.name.replace("{layer}", str(layer))] = t
        for expert in range(shape.experts.num_experts if shape.experts else 0):
            for t in part:
                if t.num_experts:
                    name = t.name.replace("{layer}", str(layer))
                    shard[name.replace("{expert}", str(expert))] = t
    for t in shape.templates:
        if not t.layers:
            rest |= dict.fromkeys(t.names(), t)
    yield first
    yield rest


def _safetensors(tensors: Mapping[str, TensorTemplate], content: Mapping[str, bytes]) -> bytes:
    """One file in the safetensors format, its header filled up to a multiple of eight bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, template in tensors.items():
        end = begin + len(content[name])
        header[name] = {
            "dtype": template.dtype,
            "shape": list(template.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, *content.values()))


def _made(config: dict[str, Any], shape: Model, files: tuple[str, ...]) -> Made:
    linear = shape.linear_layers(0, shape.num_layers)
    block = config.get("text_config", config).get("attn_res_block_size") or 0
    experts = shape.experts
    assert experts is not None
    return Made(
        architecture=shape.architecture,
        files=files,
        num_tensors=sum(t.num_tensors for t in shape.templates),
        total_bytes=sum(t.total_bytes for t in shape.templates),
        total_params=sum(t.num_tensors * t.params for t in shape.templates),
        vocab_size=shape.vocab_size,
        num_linear_layers=len(linear),
        num_full_layers=shape.num_layers - len(linear),
        index_topk=shape.indexer.topk if shape.indexer else None,
        num_dense_layers=shape.num_layers - len(shape.moe_layers),
        num_moe_layers=len(shape.moe_layers),
        num_experts=experts.num_experts,
        num_experts_per_tok=experts.num_experts_per_tok,
        expert_format=experts.format.value,
        num_snapshots=-(-shape.num_layers // block) if block else 0,
        num_vision_layers=shape.vision.num_layers if shape.vision else 0,
        assumptions=shape.assumptions,
    )
