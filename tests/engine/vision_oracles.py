"""Towers that we did not write, with the weights of one of our own checkpoints."""

import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from k31ctl.engine.checkpoint import Checkpoint
from k31ctl.engine.vision import Grid
from k31ctl.engine.vision_shape import TOWER_NORM_EPS, VisionShape
from tests.engine.oracles import oracle, transformers

Weights = Mapping[str, Tensor]


def vision_weights(folder: Path) -> dict[str, Tensor]:
    """The tensors of the tower and its projector, in float32."""
    checkpoint = Checkpoint(folder)
    names = [n for n in checkpoint.files if n.startswith(("vision_tower.", "mm_projector."))]
    return {name: checkpoint.tensor(name).float() for name in names}


def centred(weights: Weights) -> dict[str, Tensor]:
    """Weights under which every stream of the tower has the mean zero.

    There a norm by layer and one by root mean square are the same.
    """
    found = {name: tensor.clone() for name, tensor in weights.items()}
    for name, tensor in found.items():
        if name.endswith(("patch_embed.proj.weight", "wo.weight", "mlp.fc1.weight")):
            found[name] = tensor - tensor.mean(dim=0)
        if name.endswith("pos_emb.weight"):
            found[name] = tensor - tensor.mean(dim=-1, keepdim=True)
    return found


def transformers_tower(weights: Weights, shape: VisionShape) -> Any:
    """Kimi K2.5's tower, which is K3's but for layer norms, biases and bicubic positions."""
    module = transformers("transformers.models.kimi_k25.modeling_kimi_k25")
    config = transformers("transformers.models.kimi_k25.configuration_kimi_k25")
    sizes = shape.sizes
    tower = module.Kimi_K25VisionModel._from_config(
        config.Kimi_K25VisionConfig(
            hidden_size=sizes.hidden_size,
            intermediate_size=sizes.intermediate_size,
            num_hidden_layers=sizes.num_layers,
            num_attention_heads=sizes.num_heads,
            pos_emb_height=shape.grid_height,
            pos_emb_width=shape.grid_width,
        )
    ).eval()
    tower.patch_embed.pos_emb.interpolation_mode = "bilinear"
    for part in tower.modules():
        if isinstance(part, torch.nn.LayerNorm):
            part.eps = TOWER_NORM_EPS
    state = {name: torch.zeros_like(tensor) for name, tensor in tower.state_dict().items()}
    for name, tensor in weights.items():
        state |= _in_transformers(name, tensor, sizes.num_heads)
    tower.load_state_dict(state)
    return tower


def _in_transformers(name: str, tensor: Tensor, num_heads: int) -> Weights:
    """One tensor under K2.5's names; it turns the halves of a head, where K3 turns neighbours."""
    name = name.removeprefix("vision_tower.").removeprefix("encoder.")
    if name.startswith("mm_projector."):
        return {}
    if name == "patch_embed.pos_emb.weight":
        return {"patch_embed.pos_emb.position_embeddings": tensor}
    number = name.removeprefix("blocks.").partition(".")[0]
    inside = {
        "norm0": "norm1", "norm1": "norm2", "wo": "attn.proj",
        "mlp.fc0": "mlp.fc1", "mlp.fc1": "mlp.fc2",
    }  # fmt: skip
    if not name.startswith("blocks."):
        return {name: tensor}
    module = name.removeprefix(f"blocks.{number}.").removesuffix(".weight")
    if module != "wqkv":
        return {f"layers.{number}.{inside[module]}.weight": tensor}
    q, k, v = tensor.chunk(3)
    q, k = (x.view(num_heads, -1, 2, x.shape[-1]).transpose(1, 2).reshape(x.shape) for x in (q, k))
    parts = {"q_proj": q, "k_proj": k, "v_proj": v}
    return {f"layers.{number}.attn.{part}.weight": x for part, x in parts.items()}


def nemo_features(
    folder: Path, weights: Weights, patches: Tensor, grids: list[Grid]
) -> list[Tensor]:
    """Tower and projector as Moonshot wrote them and NeMo AutoModel carries them."""
    module = _nemo_vision()
    config = json.loads((folder / "config.json").read_text())["vision_config"]
    tower_config = transformers().PretrainedConfig(
        **{name.removeprefix("vt_"): value for name, value in config.items()},
        pos_emb_type="divided_fixed",
        pos_emb_interpolation_mode="bilinear",
        kimi_attn_implementation="eager",
    )
    projector_config = SimpleNamespace(
        mm_hidden_size=config["mm_hidden_size"],
        merge_kernel_size=config["merge_kernel_size"],
        hidden_size=config["text_hidden_size"],
        projector_ln_eps=1e-5,
    )
    tower = module.MoonViT3dPretrainedModel(tower_config).eval()
    projector = module.PatchMergerMLPV2(projector_config)
    for part, prefix in ((tower, "vision_tower."), (projector, "mm_projector.")):
        named = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
        part.load_state_dict(named)
    with torch.no_grad():
        return list(projector(tower(patches, torch.tensor([(1, *grid) for grid in grids]))))


def _nemo_vision() -> ModuleType:
    """The one file, without its package, which wants a GPU; not compiled, which takes a minute."""
    found = importlib.util.find_spec("nemo_automodel")
    if found is None or found.origin is None:
        pytest.skip("the oracle nemo-automodel is not installed (pip install --no-deps)")
    path = Path(found.origin).parent / "components" / "models" / "kimi_k3" / "vision.py"
    spec = importlib.util.spec_from_file_location("nemo_kimi_k3_vision", path)
    assert spec is not None
    assert spec.loader is not None
    transformers()
    module, compiled = importlib.util.module_from_spec(spec), torch.compile
    torch.compile = lambda **_: lambda function: function
    try:
        spec.loader.exec_module(module)
    finally:
        torch.compile = compiled
    return module


def mlx_logits(folder: Path, tokens: list[int], patches: Tensor, grids: list[Grid]) -> Tensor:
    """Logits behind every token of a prompt with images, of the whole K3 as mlx-vlm has it."""
    mx, nn, module = oracle("mlx.core"), oracle("mlx.nn"), _mlx_vlm_kimi_k3()
    mx.set_default_device(mx.cpu)
    config = json.loads((folder / "config.json").read_text())
    model = module.Model(
        module.ModelConfig(
            text_config=module.TextConfig.from_dict(config["text_config"]),
            vision_config=module.VisionConfig.from_dict(config["vision_config"]),
            media_placeholder_token_id=config["media_placeholder_token_id"],
        )
    )
    weights: dict[str, Any] = {}
    for path in sorted(folder.glob("*.safetensors")):
        weights |= mx.load(str(path))
    weights = model.vision_tower.sanitize(model.language_model.sanitize(weights))
    mode = {"group_size": 32, "bits": 4, "mode": "mxfp4"}
    nn.quantize(model, **mode, class_predicate=lambda name, _: f"{name}.scales" in weights)
    model.load_weights(list(weights.items()))
    model.set_dtype(mx.float32)
    for _, part in model.vision_tower.named_modules():
        if isinstance(part, nn.RMSNorm):
            part.eps = TOWER_NORM_EPS  # it takes 2^-7, the epsilon of bfloat16
    shapes = [(1, *grid) for grid in grids]
    said = model(mx.array([tokens]), mx.array(patches.tolist()), grid_thws=shapes)
    return torch.tensor(said.logits[0].tolist())


def mlx_image_processor() -> Any:
    """How mlx-vlm prepares images, which it has from the release's own processor."""
    board = {
        "pattern": "chessboard",
        "chessboard_square_size": 8,
        "chessboard_white_value": 255,
        "chessboard_gray_value": 180,
    }
    return _mlx_vlm_kimi_k3().ImageProcessor(
        transparent_bg_config=board, transparent_bg_fill_stage="after_resize"
    )


def _mlx_vlm_kimi_k3() -> Any:
    found = importlib.util.find_spec("mlx_vlm")
    if found is None or found.origin is None:
        pytest.skip("the oracle mlx-vlm is not installed (pip install --no-deps)")
    if "mlx_vlm" not in sys.modules:  # its package starts by importing every model's needs
        package = types.ModuleType("mlx_vlm")
        package.__spec__, package.__path__ = found, [str(Path(found.origin).parent)]
        sys.modules["mlx_vlm"] = package
    transformers()
    return oracle("mlx_vlm.models.kimi_k3")
