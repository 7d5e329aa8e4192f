"""A small checkpoint of Kimi K3's architecture, written by the safetensors library itself."""

import ctypes
import hashlib
import json
import random
from pathlib import Path
from typing import Any

from safetensors import TensorSpec, serialize_file

from k31ctl.catalog.models import model_at

DATA = Path(__file__).parent.parent / "data"
INDEX = "model.safetensors.index.json"
SHARDS = tuple(f"model-0000{i}-of-000003.safetensors" for i in (1, 2, 3))
# BF16 numbers near 0.01, packed groups whose largest value is 6, scales near 2^-7.
NEAR_ZERO = b"\x24\x3c\x17\xbc"
NAMES = {"BF16": "bfloat16", "F32": "float32", "U8": "uint8"}


def tiny_config() -> dict[str, Any]:
    """Kimi K3's own configuration, with four layers, four experts and narrow matrices."""
    config: dict[str, Any] = json.loads((DATA / "kimi-k3.config.json").read_text())
    text, vision = config["text_config"], config["vision_config"]
    text |= {"num_hidden_layers": 4, "hidden_size": 64, "vocab_size": 32, "intermediate_size": 64}
    text |= {"num_experts": 4, "num_experts_per_token": 1, "moe_intermediate_size": 64}
    text |= {"routed_expert_hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    text |= {"kv_lora_rank": 16, "q_lora_rank": 16, "attn_res_block_size": 2}
    text["linear_attn_config"] |= {"full_attn_layers": [4], "kda_layers": [1, 2, 3]}
    text["linear_attn_config"] |= {"num_heads": 2, "head_dim": 16}
    vision |= {"vt_num_hidden_layers": 1, "vt_hidden_size": 16, "vt_intermediate_size": 16}
    vision |= {"qkv_hidden_size": 16, "init_pos_emb_height": 2, "init_pos_emb_width": 2}
    return config


def content(name: str, dtype: str, num_bytes: int, seed: random.Random) -> bytes:
    if name.endswith(".weight_scale"):
        return bytes(seed.choice((119, 120, 121)) for _ in range(num_bytes))
    if dtype == "U8":
        groups = num_bytes // 16
        return b"".join(b"\x7f" + seed.randbytes(15) for _ in range(groups))
    return bytes(seed.choice(NEAR_ZERO[1::2]) if i % 2 else 0x24 for i in range(num_bytes))


def write_shard(path: Path, tensors: dict[str, tuple[Any, bytes]]) -> None:
    buffers = {n: ctypes.create_string_buffer(data, len(data)) for n, (_, data) in tensors.items()}
    specs = {
        name: TensorSpec(
            dtype=NAMES[t.dtype],
            shape=list(t.shape),
            data_ptr=ctypes.addressof(buffers[name]),
            data_len=len(data),
        )
        for name, (t, data) in tensors.items()
    }
    serialize_file(specs, str(path), {"format": "pt"})


def write_tiny(folder: Path) -> dict[str, str]:
    """Write a whole checkpoint with its manifest; returns which file holds which tensor."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config()))
    templates = model_at(folder).templates
    seed = random.Random(7)
    shards: dict[str, dict[str, tuple[Any, bytes]]] = {name: {} for name in SHARDS}
    every = [(name, t) for t in templates for name in t.names()]
    for i, (name, t) in enumerate(every):
        data = content(name, t.dtype, t.tensor_bytes, seed)
        shards[SHARDS[i * len(SHARDS) // len(every)]][name] = (t, data)
    for shard, tensors in shards.items():
        write_shard(folder / shard, tensors)
    weight_map = {name: shard for shard, tensors in shards.items() for name in tensors}
    total = sum(t.total_bytes for t in templates)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index))
    write_manifest(folder)
    return weight_map


def write_manifest(folder: Path) -> None:
    files = [
        {
            "path": path.name,
            "size_bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith((".", "k31ctl"))
    ]
    document = {"schema": "k31ctl/manifest/v1", "files": files}
    (folder / "k31ctl-manifest.json").write_text(json.dumps(document))


def flip(path: Path, position: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def place_of(path: Path, tensor: str) -> tuple[int, int]:
    """First byte and end of a tensor in a file."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    begin, end = json.loads(raw[8 : 8 + length])[tensor]["data_offsets"]
    return 8 + length + begin, 8 + length + end
