"""Steps expert and blocks: the engine's blocks on plain tensors against float64.

T tokens, D width, H heads, d channels of a head.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import torch
from torch import Tensor

from k31ctl.core.ladder import Measure, measure
from k31ctl.engine import blocks as block
from k31ctl.engine.config import LORA_NORM_EPS, Activation, Router
from k31ctl.engine.linear import situ
from k31ctl.engine.residual import residual_mix
from k31ctl.smoke import reference
from k31ctl.smoke.device_step import fastest, relative
from k31ctl.smoke.session import Found, Session, Skipped

EXACT_ERROR: Final = 2e-5
ROUNDED_ERROR: Final = 3e-2
_BATCHES: Final = (1, 128, 2048)
_SITU: Final = Activation(gate_bound=4.0, up_bound=25.0)
_EPS: Final = 1e-5
_ONE: Final = Router(
    num_experts=1,
    num_chosen=1,
    num_groups=1,
    num_chosen_groups=1,
    renormalised=True,
    scale=1.0,
)


def bound(dtype: torch.dtype) -> float:
    """The largest error that counts as rounding."""
    return EXACT_ERROR if dtype == torch.float32 else ROUNDED_ERROR


def expert(session: Session) -> Found:
    """One expert of the checkpoint, spelled out and multiplied with, for few and many tokens."""
    config = session.config
    numbers = session.layers or range(config.num_layers)
    number = next((each for each in numbers if each >= config.num_dense_layers), None)
    if number is None:
        raise Skipped("the layers that were asked for have no experts")
    read, has = session.reading(f"model.layers.{number}.block_sparse_moe.experts.0.")
    if not has("w1.weight_packed"):
        raise Skipped("the experts of this checkpoint are not packed")
    names = [f"{name}.weight_{part}" for name in ("w1", "w2", "w3") for part in ("packed", "scale")]
    tensors = {name: read(name) for name in names}
    measures, faults = _spelled_out(tensors, session.device)
    shape, kind = config.moe, config.moe.activation
    own = {f"experts.0.{name}": tensor for name, tensor in tensors.items()}
    width = shape.latent or shape.hidden
    own["gate.weight"] = torch.zeros(1, width, device=session.device)
    own["gate.e_score_correction_bias"] = torch.zeros(1, device=session.device)
    for count in _BATCHES:
        z = normal(count, width, seed=count, at=session.device, dtype=session.dtype)
        said = block.moe_layer(
            z, own, router=_ONE, activation=kind, eps=_EPS, packed=session.task.experts == "packed"
        )
        want = reference.expert(z.double(), *reference.named(tensors), kind)
        name = f"{count:,} token{'s' if count > 1 else ''}, error"
        measures.append(measure(name, relative(said, want), at_most=bound(session.dtype)))
    detail = f"layer {number}, expert 0: bits as MXFP4 defines them, products agree with float64"
    return Found(detail=detail, measures=tuple(measures), faults=tuple(faults))


def _spelled_out(
    tensors: Mapping[str, Tensor], at: torch.device
) -> tuple[list[Measure], list[str]]:
    """Every value equal to the format's definition; how many groups use their scale."""
    faults, used, total = [], 0, 0
    for name in ("w1", "w2", "w3"):
        packed, scale = tensors[f"{name}.weight_packed"], tensors[f"{name}.weight_scale"]
        values = block.dequantise(packed, scale, dtype=torch.float32)
        want = reference.dequantised(packed, scale)
        if not torch.equal(values.double(), want):
            wrong = int((values.double() != want).sum())
            faults.append(f"{name} is spelled out wrongly in {wrong:,} places, or holds NaN")
        low, high = (packed & 7).to(torch.int16), ((packed >> 4) & 7).to(torch.int16)
        largest = torch.maximum(low, high).unflatten(-1, (-1, 16)).amax(-1)
        used, total = used + int((largest >= 6).sum()), total + largest.numel()  # noqa: PLR2004
    packed, scale = tensors["w1.weight_packed"], tensors["w1.weight_scale"]
    seconds = fastest(lambda: block.dequantise(packed, scale, dtype=torch.float32), at)
    rate = (packed.numel() + scale.numel()) / seconds / 1e9
    return [
        measure("groups of 32 whose largest value is 4 or 6", used / total),
        measure("spelled out", rate, unit="GB/s"),
    ], faults


def blocks(session: Session) -> Found:
    """Every block on small random numbers, in float32 and in bf16."""
    measures = []
    for dtype in (torch.float32, torch.bfloat16):
        name = "float32" if dtype == torch.float32 else "bf16"
        for what, said, want in _cases(session.device, dtype):
            measures.append(measure(f"{what}, {name}", relative(said, want), at_most=bound(dtype)))
    detail = f"{len(measures)} comparisons with float64"
    return Found(detail=detail, measures=tuple(measures))


def _cases(at: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    """What a block says, and what it should."""
    gate, up = (normal(64, 96, seed=n, at=at, dtype=dtype) * 8 for n in (1, 2))
    want = reference.gated(gate.double(), up.double(), _SITU)
    yield "SiTU", situ(gate, up, gate_bound=4.0, up_bound=25.0), want
    rows, norm, proj = (
        normal(*shape, seed=3, at=at, dtype=dtype) for shape in ((9, 5, 64), (64,), (1, 64))
    )
    want = reference.mixed(rows.double(), norm, proj, _EPS)
    yield "Attention Residuals", residual_mix(rows, (norm.float() * proj.float()[0]), _EPS), want
    yield from _kda_cases(at, dtype)
    yield from _latent_cases(at, dtype)
    yield from _moe_cases(at, dtype)


def _kda_cases(at: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    D, H, d = 64, 2, 32
    shapes: dict[str, tuple[int, ...]] = {f"{n}_proj.weight": (H * d, D) for n in "qkvg"}
    shapes |= {"o_proj.weight": (D, H * d), "b_proj.weight": (H, D), "f_a_proj.weight": (d, D)}
    shapes |= {"f_b_proj.weight": (H * d, d), "o_norm.weight": (d,)}
    shapes |= {f"{name}_conv1d.weight": (H * d, 1, 4) for name in "qkv"}
    tensors = random_tensors(shapes, at, dtype)
    tensors |= {
        name: normal(*shape, seed=9, at=at)
        for name, shape in (("A_log", (H,)), ("dt_bias", (H * d,)))
    }
    x = normal(80, D, seed=4, at=at, dtype=dtype)
    read, _ = reference.named(tensors)
    want = reference.kda(x.double(), read, eps=_EPS, bound=-5.0, is_full=True)
    said, _ = block.kda_layer(x, tensors, eps=_EPS, decay_bound=-5.0)
    yield "KDA in chunks", said, want
    memory: block.Memory | None = None
    steps = []
    for row in x[:24]:
        out, memory = block.kda_layer(row[None], tensors, eps=_EPS, decay_bound=-5.0, memory=memory)
        steps.append(out)
    yield "KDA token by token", torch.cat(steps), want[:24]


def _latent_cases(at: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    D, H, Q, R, P, N, V, X, Y = 64, 4, 48, 32, 16, 32, 32, 32, 4
    shapes = {
        "q_a_proj.weight": (Q, D),
        "q_a_layernorm.weight": (Q,),
        "q_b_proj.weight": (H * (N + P), Q),
        "kv_a_proj_with_mqa.weight": (R + P, D),
        "kv_a_layernorm.weight": (R,),
        "kv_b_proj.weight": (H * (N + V), R),
        "g_proj.weight": (H * V, D),
        "o_proj.weight": (D, H * V),
    }
    tensors = random_tensors(shapes, at, dtype)
    x = normal(24, D, seed=5, at=at, dtype=dtype)

    def wanted(topk: int | None) -> Tensor:
        found = reference.latent(
            x.double(),
            *reference.named(tensors),
            heads=H,
            topk=topk,
            lora_eps=LORA_NORM_EPS,
            index_eps=_EPS,
        )
        return found.out

    for absorbed, name in ((False, "spelled out"), (True, "absorbed")):
        said, _ = block.latent_layer(x, tensors, num_heads=H, absorbed=absorbed)
        yield f"latent attention, {name}", said, wanted(None)
    if dtype == torch.float32:  # in bf16 a near tie may be decided otherwise
        index = {
            "indexer.wq_b.weight": (Y * X, Q),
            "indexer.wk.weight": (X, D),
            "indexer.weights_proj.weight": (Y, D),
            "indexer.k_norm.weight": (X,),
            "indexer.k_norm.bias": (X,),
        }
        tensors |= random_tensors(index, at, dtype)
        said, _ = block.latent_layer(x, tensors, num_heads=H, index_topk=8)
        yield "sparse attention over 8 of 24", said, wanted(8)


def _moe_cases(at: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Tensor, Tensor]]:
    D, L, width, E = 64, 32, 64, 6
    shapes = {
        "routed_expert_down_proj.weight": (L, D),
        "routed_expert_up_proj.weight": (D, L),
        "routed_expert_norm.weight": (L,),
        **{f"shared_experts.{name}_proj.weight": (width, D) for name in ("gate", "up")},
        "shared_experts.down_proj.weight": (D, width),
    }
    tensors = random_tensors(shapes, at, dtype)
    tensors["gate.weight"] = normal(E, D, seed=6, at=at)
    tensors["gate.e_score_correction_bias"] = normal(E, seed=7, at=at) / 10
    random = torch.Generator().manual_seed(8)
    for e in range(E):
        for name, (rows, columns) in {"w1": (width, L), "w3": (width, L), "w2": (L, width)}.items():
            packed = torch.randint(0, 256, (rows, columns // 2), generator=random)
            scale = torch.randint(120, 126, (rows, columns // 32), generator=random)
            tensors[f"experts.{e}.{name}.weight_packed"] = packed.to(at, torch.uint8)
            tensors[f"experts.{e}.{name}.weight_scale"] = scale.to(at, torch.uint8)
    router = Router(
        num_experts=E,
        num_chosen=2,
        num_groups=1,
        num_chosen_groups=1,
        renormalised=True,
        scale=1.0,
    )
    x = normal(24, D, seed=11, at=at, dtype=dtype)
    want = reference.moe(
        x.double(), *reference.named(tensors), router=router, kind=_SITU, eps=_EPS
    ).out
    for packed, name in ((False, "spelled out"), (True, "packed")):
        said = block.moe_layer(x, tensors, router=router, activation=_SITU, eps=_EPS, packed=packed)
        yield f"experts, {name}", said, want


def normal(*shape: int, seed: int, at: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal numbers, the same on every device."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=random).to(at, dtype)


def random_tensors(
    shapes: Mapping[str, tuple[int, ...]], at: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Weights that keep numbers near one, rounded to the type that is computed in."""
    found = {}
    for seed, (name, shape) in enumerate(shapes.items(), start=100):
        weight = normal(*shape, seed=seed, at=at)
        weight = 1 + weight / 10 if len(shape) == 1 else weight * shape[-1] ** -0.5
        found[name] = weight.to(dtype)
    return found
