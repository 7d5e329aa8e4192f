"""Random checkpoints of about 100 M parameters, for timing the embedded engine beside others.

``.venv/bin/python benchmarks/engine_checkpoint.py kimi-linear FOLDER`` (or ``kimi-k3``). The
architecture is the profile's; only the sizes are small. The same seed gives the same bytes.
"""

import json
import random
from argparse import ArgumentParser
from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.models import load_config_profile
from k31ctl.catalog.store import Store, default_folders
from k31ctl.core.architecture import model_from_config
from k31ctl.core.model import Model
from k31ctl.core.tensors import ELEMENT_BYTES
from k31ctl.tiny.values import random_bytes

_PROFILES: Final = {"kimi-linear": "kimi-linear-48b", "kimi-k3": "kimi-k3"}
_TEXT: Final[dict[str, Any]] = {
    **{"vocab_size": 16384, "hidden_size": 512, "intermediate_size": 2048, "num_experts": 16},
    **{"num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8},
    **{"kv_lora_rank": 256, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    **{"num_shared_experts": 1, "first_k_dense_replace": 1},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
}
_LINEAR: Final = {
    **{"full_attn_layers": [4, 8], "kda_layers": [1, 2, 3, 5, 6, 7]},
    **{"num_heads": 8, "head_dim": 128},
}
_IF_THERE: Final[dict[str, Any]] = {
    **{"num_experts_per_token": 4, "num_experts_per_tok": 4, "head_dim": 64},
    **{"q_lora_rank": 256, "routed_expert_hidden_size": 256, "attn_res_block_size": 4},
    **{"max_position_embeddings": 8192, "model_max_length": 8192},
}
_EXPERT_WIDTH: Final = {"kimi-linear": 320, "kimi-k3": 576}


def small_config(model: str) -> dict[str, Any]:
    """The profile's configuration with the sizes of the measurement, text only."""
    store = Store(default_folders())
    found: dict[str, Any] = json.loads(json.dumps(load_config_profile(store, _PROFILES[model])))
    text = found.get("text_config", found)
    text |= _TEXT | {"moe_intermediate_size": _EXPERT_WIDTH[model]}
    text |= {name: size for name, size in _IF_THERE.items() if text.get(name)}
    text["linear_attn_config"] |= _LINEAR
    return found


def shard(shape: Model, seed: int) -> list[bytes]:
    """One file of safetensors with every text tensor: the header's length, header and values."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content, begin, draw = [], 0, random.Random(seed)
    for template in shape.templates:
        if template.name.startswith(("vision_tower", "mm_projector")):
            continue
        for name in template.names():
            content.append(random_bytes(template, name, draw))
            end = begin + len(content[-1])
            offsets = {"data_offsets": [begin, end]}
            header[name] = {"dtype": template.dtype, "shape": list(template.shape)} | offsets
            begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % max(ELEMENT_BYTES.values()))
    return [len(text).to_bytes(8, "little"), text, *content]


def main() -> None:
    """Write one checkpoint."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=sorted(_PROFILES))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    config = small_config(options.model)
    shape = model_from_config(config, model_id=options.model, name=options.model, where="here")
    options.folder.mkdir(parents=True)
    (options.folder / "config.json").write_text(json.dumps(config, indent=1))
    with (options.folder / "model.safetensors").open("wb") as file:
        file.writelines(shard(shape, options.seed))
        print(f"{options.model}: {file.tell() / 1e6:.0f} MB in {options.folder}")  # noqa: T201


if __name__ == "__main__":
    main()
