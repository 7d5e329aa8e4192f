"""The released configurations at full size, laid out without values."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.models import load_config_profile, load_model
from k31ctl.core.model import SparseLatentAttention
from k31ctl.engine.cache import Cache
from k31ctl.engine.config import EngineConfig, engine_config
from k31ctl.engine.model import Model
from k31ctl.engine.tensors import Target, Tensors

STORE = Store(default_folders())
NOWHERE = Target(dtype=torch.bfloat16, device=torch.device("meta"))
DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32, "U8": torch.uint8}
MODELS = ("kimi-k3.1-pro", "kimi-k3", "kimi-linear-48b")


def config_of(model: str) -> EngineConfig:
    return engine_config(load_config_profile(STORE, model), where=model)


def stored(model: str, *, layers: range) -> dict[str, Tensor]:
    """The text tensors of some layers and of what is around them, without values."""
    found: dict[str, Tensor] = {}
    for t in load_model(STORE, model).templates:
        here = tuple(layer for layer in t.layers if layer in layers)
        if t.name.startswith(("vision_tower", "mm_projector")) or (t.layers and not here):
            continue
        empty = torch.empty(t.shape, dtype=DTYPES[t.dtype], device="meta")
        found |= dict.fromkeys(replace(t, layers=here).names(), empty)
    return found


@pytest.mark.parametrize("model", MODELS)
def test_the_tensors_of_the_inventory_are_those_that_the_engine_asks_for(model: str) -> None:
    layers = range(4)  # dense, KDA, a mixture of experts, latent attention
    found, asked = stored(model, layers=layers), set()

    def read(name: str) -> Tensor:
        asked.add(name)
        return found[name]

    prefix = "" if model == "kimi-linear-48b" else "language_model."
    tensors = Tensors(read, found, prefix=prefix)
    Model(tensors, config=config_of(model), target=NOWHERE, layers=layers, packed_experts=True)
    assert asked == found.keys()


@pytest.mark.parametrize(
    ("model", "per_token", "per_sequence"),
    [
        # 24 layers x 576 x 2 B; 69 x (96 x 128 x 128 x 4 B + 3 x 3 x 12288 x 2 B)
        ("kimi-k3", 27_648, 449_372_160),
        # and 24 index keys of 128 x 2 B
        ("kimi-k3.1-pro", 27_648 + 6_144, 449_372_160),
    ],
)
def test_the_cache_costs_what_the_plan_says(model: str, per_token: int, per_sequence: int) -> None:
    mixers = dict(enumerate(config_of(model).mixers))
    sizes = [
        Cache(mixers, num_slots=slots, num_tokens=tokens, target=NOWHERE).num_bytes()
        for slots, tokens in ((0, 64), (1, 0), (3, 128))
    ]
    assert sizes == [64 * per_token, per_sequence, 128 * per_token + 3 * per_sequence]


def test_k31_is_read_as_the_release_describes_it() -> None:
    config = config_of("kimi-k3.1-pro")
    sparse = [i for i, m in enumerate(config.mixers) if isinstance(m, SparseLatentAttention)]
    assert sparse == [*range(3, 92, 4), 92]
    assert (config.decay_bound, config.norm_eps, config.index_norm_eps) == (-5.0, 1e-5, 1e-5)
    assert (config.moe.activation.gate_bound, config.moe.activation.up_bound) == (4.0, 25.0)
    assert (config.moe.latent, config.moe.shared_width) == (3584, 6144)
    assert (config.residual_block, config.num_dense_layers, config.moe.router.scale) == (12, 1, 1.0)
