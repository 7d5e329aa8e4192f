"""The image encoder against towers that we did not write, and images in the prompts of a model."""

import dataclasses
import json
import shutil
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.models import load_config_profile, load_model_profile
from k31ctl.core.vision import ImageTokens
from k31ctl.engine.blocks import image_vectors
from k31ctl.engine.checkpoint import load_vision
from k31ctl.engine.generate import Failed, Generation, Request, Said
from k31ctl.engine.image_prompt import PromptImages
from k31ctl.engine.images import PreparedImage
from k31ctl.engine.model import Model, Placed, Segment
from k31ctl.engine.sample import Sampling
from k31ctl.engine.tensors import Target, Tensors
from k31ctl.engine.vision import VisionEncoder, merged_patches, patches_of
from k31ctl.engine.vision_shape import refuse_other_images, vision_shape
from k31ctl.errors import InputError, RefusedError
from tests.engine.conftest import Tiny
from tests.engine.pictures import picture, prepared
from tests.engine.runs import CPU, F32, error, load, prompt
from tests.engine.scripted import VISION
from tests.engine.vision_oracles import (
    centred,
    mlx_image_processor,
    mlx_logits,
    nemo_features,
    transformers_tower,
    vision_weights,
)

GRIDS = [(4, 6), (16, 16), (2, 40), (30, 18)]  # the table of tiny checkpoints is 16 by 16
GREEDY = Sampling(temperature=0.0)


def encoder(folder: Path, target: Target = F32) -> VisionEncoder:
    found = load_vision(folder, target)
    assert found is not None
    return found


def pixels(grids: list[tuple[int, int]]) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.rand(sum(y * x for y, x in grids), 3, 14, 14, generator=draw) * 2 - 1


@pytest.mark.filterwarnings("ignore")
def test_tower_and_projector_are_moonshots(tiny: Tiny) -> None:
    folder, patches = tiny("kimi-k3"), pixels(GRIDS)
    weights = vision_weights(folder)
    expected = nemo_features(folder, weights, patches, GRIDS)
    found = encoder(folder).encode(patches, GRIDS)
    assert torch.equal(found, image_vectors(patches, weights, grids=GRIDS, num_heads=4))
    assert [len(each) for each in expected] == [6, 64, 20, 135]
    for ours, theirs in zip(found.split([6, 64, 20, 135]), expected, strict=True):
        assert error(ours, theirs) < 5e-5


@pytest.mark.filterwarnings("ignore")
def test_the_tower_is_that_of_transformers_where_the_two_are_one(tiny: Tiny) -> None:
    folder, patches = tiny("kimi-k3"), pixels(GRIDS)
    shape, weights = encoder(folder).shape, centred(vision_weights(folder))
    ours = VisionEncoder(Tensors(weights.__getitem__, weights), shape, F32)
    theirs = transformers_tower(weights, shape)
    with torch.no_grad():
        grid = torch.tensor([(1, *grid) for grid in GRIDS])
        expected = theirs(patches, grid).pooler_output.flatten(1)
    found = merged_patches(ours.tower(patches, GRIDS), GRIDS, shape)
    assert error(found, expected) < 5e-5


@pytest.mark.filterwarnings("ignore")
def test_a_prompt_with_images_says_what_mlx_says(tiny: Tiny) -> None:
    folder, grids = tiny("kimi-k3"), [(4, 6), (2, 10)]
    ours, vision, patches = load(folder), encoder(folder), pixels(grids)
    pad = vision.shape.media_pad
    tokens = [5, 6, *[pad] * 6, 7, *[pad] * 5, 8, 9]
    rows = torch.tensor([place for place, token in enumerate(tokens) if token == pad])
    cache = ours.cache(num_slots=1, num_tokens=64)
    segment = Segment(slot=cache.open(64) or 0, start=0, length=len(tokens))
    placed = Placed(rows, vision.encode(patches, grids))
    found = ours(torch.tensor(tokens), [segment], cache, every=True, placed=placed)
    assert error(found, mlx_logits(folder, tokens, patches, grids)) < 5e-5


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [(28, 28), (61, 97), (300, 20)])
def test_pixels_are_those_of_mlx(size: tuple[int, int]) -> None:
    image = picture(*size)
    expected = mlx_image_processor().preprocess([image])
    found, grid = patches_of(prepared(image, VISION), 14)
    assert expected["grid_thws"].tolist() == [[1, *grid]]
    assert torch.equal(found, torch.tensor(expected["pixel_values"].tolist()))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "L"])
def test_pixels_of_other_kinds_are_those_of_mlx_to_one_level(mode: str) -> None:
    image = picture(8000, 60).convert(mode)  # which is scaled down
    if mode in ("RGBA", "LA"):
        image.putalpha(picture(8000, 60, seed=3).convert("L"))
    expected = mlx_image_processor().preprocess([image])
    found, _ = patches_of(prepared(image, VISION), 14)
    apart = (found - torch.tensor(expected["pixel_values"].tolist())).abs().max()
    assert float(apart) < 1.01 * 2 / 255


def test_bf16_points_where_float32_does(tiny: Tiny) -> None:
    folder, patches = tiny("kimi-k3.1-pro"), pixels(GRIDS)
    exact = encoder(folder).encode(patches, GRIDS)
    rounded = encoder(folder, Target(dtype=torch.bfloat16, device=CPU)).encode(patches, GRIDS)
    assert rounded.dtype == torch.bfloat16
    assert float(torch.cosine_similarity(exact, rounded.float(), dim=-1).min()) > 0.999


def test_an_image_says_alone_what_it_says_among_others(tiny: Tiny) -> None:
    vision, patches = encoder(tiny("kimi-k3")), pixels(GRIDS)
    alone = [
        vision.encode(part, [grid])
        for part, grid in zip(patches.split([y * x for y, x in GRIDS]), GRIDS, strict=True)
    ]
    assert error(vision.encode(patches, GRIDS), torch.cat(alone)) < 1e-6


@pytest.mark.parametrize("model", ["kimi-k3", "kimi-k3.1-pro"])
def test_every_tensor_of_the_released_encoder_is_read_once(model: str) -> None:
    store = Store(default_folders())
    templates = load_model_profile(store, model).templates
    expected = {
        name: template.shape
        for template in templates
        for name in template.names()
        if name.startswith(("vision_tower.", "mm_projector."))
    }
    read: list[str] = []

    def empty(name: str) -> Tensor:
        read.append(name)
        return torch.empty(expected[name], dtype=torch.bfloat16, device="meta")

    config = {**load_config_profile(store, model), "media_placeholder_token_id": 163605}
    shape = vision_shape(config, where=model)
    assert shape is not None
    meta = Target(dtype=torch.bfloat16, device=torch.device("meta"))
    VisionEncoder(Tensors(empty, expected), shape, meta)
    assert sorted(read) == sorted(expected)
    assert len(read) == 168


def numbered(count: int, first: int) -> PreparedImage:
    """An image of so many tokens; its height tells the first of its numbers."""
    tokens = ImageTokens(
        width=1, height=first, scaled_width=1, scaled_height=1, padded_width=28, padded_height=28,
        num_patches=4 * count, num_tokens=count,
    )  # fmt: skip
    return PreparedImage(rgb=b"", tokens=tokens)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9)), max_size=4),
    st.sets(st.integers(1, 50)),
)
def test_images_come_whole_and_in_order_however_the_prompt_is_cut(
    parts: list[tuple[int, int]], cuts: set[int]
) -> None:
    counts = [count for _, count in parts]
    firsts = [0, *accumulate(counts)][: len(counts)]
    tokens = [token for gap, count in parts for token in [1] * gap + [9] * count] + [1]
    encoded: list[int] = []

    def encode(image: PreparedImage) -> Tensor:
        encoded.append(image.tokens.height)
        return torch.arange(image.tokens.num_tokens)[:, None] + image.tokens.height

    images = [numbered(count, first) for count, first in zip(counts, firsts, strict=True)]
    ours = PromptImages(tokens, images, media_pad=9, encode=encode)
    found: dict[int, int] = {}
    for begin, end in pairwise(sorted({0, len(tokens)} | {c for c in cuts if c < len(tokens)})):
        if (within := ours.within(begin, end)) is not None:
            numbers = within[1][:, 0].tolist()
            found |= {begin + row: n for row, n in zip(within[0], numbers, strict=True)}
        assert ours.num_encoded <= 1
    assert found == {place: n for n, place in enumerate(i for i, t in enumerate(tokens) if t == 9)}
    assert encoded == firsts
    assert ours.num_encoded == 0


class Prompts:
    """Requests over one tiny model with pictures of 12 and 35 tokens."""

    def __init__(self, folder: Path) -> None:
        self.model: Model = load(folder)
        self.vision = encoder(folder)
        sizes = self.vision.shape.sizes
        self.pictures = [prepared(picture(w, h, seed=w), sizes) for w, h in ((112, 84), (140, 190))]

    def ask(self, name: str, pictures: list[int], **options: Any) -> Request:
        text = [token for token in prompt(200).tolist() if token != self.vision.shape.media_pad]
        tokens = text[:5]
        for number in pictures:
            num_tokens = self.pictures[number].tokens.num_tokens
            tokens += [self.vision.shape.media_pad] * num_tokens + text[5:9]
        given: dict[str, Any] = {"tokens": tuple(tokens), "max_tokens": 6, "num_top": 3} | options
        images = tuple(self.pictures[number] for number in pictures)
        return Request(id=name, sampling=GREEDY, images=images, **given)

    def generation(self, **options: Any) -> Generation:
        room = {"num_slots": 4, "num_tokens": 512} | options
        return Generation(self.model, vision=self.vision, **room)

    def said(self, *requests: Request, **options: Any) -> dict[str, list[Said]]:
        generation = self.generation(**options)
        for request in requests:
            generation.submit(request)
        found: dict[str, list[Said]] = {request.id: [] for request in requests}
        for each in generation.run():
            found[each.request_id].append(each)
        assert (generation.cache.num_free_slots, generation.cache.num_free_tokens) == (4, 512)
        return found


@pytest.fixture(scope="module", params=["kimi-k3", "kimi-k3.1-pro"])
def prompts(request: pytest.FixtureRequest, tiny: Tiny) -> Prompts:
    return Prompts(tiny(request.param))


def likelihoods(said: list[Said]) -> list[float]:
    return [each.likelihood.logprob for each in said if each.likelihood is not None]


def same(one: list[Said], other: list[Said]) -> bool:
    return [each.token for each in one] == [each.token for each in other] and likelihoods(
        one
    ) == pytest.approx(likelihoods(other), abs=1e-4)


@pytest.mark.parametrize("piece_tokens", [1, 7, 16, 40])
def test_a_prompt_with_images_in_pieces_is_the_prompt_at_once(
    prompts: Prompts, piece_tokens: int
) -> None:
    request = prompts.ask("a", [0, 1, 0])
    whole = prompts.said(request)["a"]
    assert len(likelihoods(whole)) == 6
    assert same(prompts.said(request, piece_tokens=piece_tokens)["a"], whole)


def test_requests_with_images_say_alone_what_they_say_together(prompts: Prompts) -> None:
    requests = [
        prompts.ask(str(n), which) for n, which in enumerate([[0], [1, 0], [], [0, 1], [1]])
    ]
    together = prompts.said(*requests, piece_tokens=20)
    for request in requests:
        assert same(together[request.id], prompts.said(request)[request.id])


def test_what_is_in_an_image_and_the_order_of_images_matter(prompts: Prompts) -> None:
    small, large, both, turned = (
        likelihoods(prompts.said(prompts.ask("a", which))["a"])
        for which in ([0], [1], [0, 1], [1, 0])
    )
    assert small != pytest.approx(large, abs=1e-3)
    assert both != pytest.approx(turned, abs=1e-3)


def test_cancelling_in_an_image_gives_everything_back(prompts: Prompts) -> None:
    generation = prompts.generation(piece_tokens=8)
    generation.submit(prompts.ask("a", [1]))
    generation.step()
    generation.step()
    assert generation.cache.num_free_slots == 3
    assert generation.num_encoded_images == 1
    assert generation.cancel("a")
    assert (generation.cache.num_free_slots, generation.cache.num_free_tokens) == (4, 512)
    assert generation.num_encoded_images == 0
    assert generation.step() == []


def test_an_image_that_cannot_be_encoded_ends_its_request_alone(prompts: Prompts) -> None:
    broken = dataclasses.replace(prompts.pictures[0], rgb=b"")
    request = dataclasses.replace(prompts.ask("a", [0]), images=(broken,))
    generation = prompts.generation()
    for each in (request, prompts.ask("b", [1])):
        generation.submit(each)
    failed, said = generation.step()
    assert isinstance(failed, Failed)
    assert failed.request_id == "a"
    assert [said, *generation.run()] == prompts.said(prompts.ask("b", [1]))["b"]
    assert (generation.cache.num_free_slots, generation.cache.num_free_tokens) == (4, 512)


def test_room_is_counted_with_the_tokens_of_images(prompts: Prompts) -> None:
    generation = prompts.generation(num_tokens=64)
    with pytest.raises(RefusedError, match=r"76 tokens and 6 more"):  # 5 + 12 + 4 + 35 + 4 + 12 + 4
        generation.submit(prompts.ask("a", [0, 1, 0], max_tokens=6))


def test_places_and_images_must_agree(prompts: Prompts) -> None:
    request = prompts.ask("a", [0, 1])
    for tokens in (request.tokens[:-20], (*request.tokens, prompts.vision.shape.media_pad)):
        with pytest.raises(RefusedError, match="places for image tokens"):
            prompts.generation().submit(prompts.ask("a", [0, 1], tokens=tokens))


def test_images_without_an_encoder_are_refused(prompts: Prompts) -> None:
    generation = Generation(prompts.model, num_slots=1, num_tokens=128)
    with pytest.raises(RefusedError, match="no image encoder"):
        generation.submit(prompts.ask("a", [0]))


def test_a_text_model_has_no_encoder(tiny: Tiny) -> None:
    assert load_vision(tiny("kimi-linear"), F32) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pos_emb_interpolation_mode", "bicubic"),
        ("activation_func", "relu"),
        ("merge_type", "none"),
        ("norm_type", "layernorm"),
        ("attn_bias", True),
        ("mm_projector_type", "patchmerger"),
        ("qkv_hidden_size", 66),
        ("projector_ln_eps", "small"),
    ],
)
def test_another_tower_is_refused_by_its_field(tiny: Tiny, field: str, value: object) -> None:
    config = json.loads((tiny("kimi-k3") / "config.json").read_text())
    config["vision_config"][field] = value
    with pytest.raises(InputError, match=field):
        vision_shape(config, where="here")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("in_patch_limit", 16384),
        ("image_mean", [0.48, 0.46, 0.41]),
        ("merge_kernel_size", [4, 4]),
        ("patch_size", 16),
    ],
)
def test_other_rules_for_images_are_refused_by_their_field(
    tmp_path: Path, field: str, value: object
) -> None:
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({"media_proc_cfg": {"merge_kernel_size": 2, field: value}}))
    with pytest.raises(InputError, match=field):
        refuse_other_images(tmp_path, VISION)


def without(folder: Path, place: Path, prefix: str) -> Path:
    """A copy whose index does not name the tensors that begin so."""
    shutil.copytree(folder, place)
    path = place / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    files = index["weight_map"]
    index["weight_map"] = {n: file for n, file in files.items() if not n.startswith(prefix)}
    assert len(index["weight_map"]) < len(files)
    path.write_text(json.dumps(index))
    return place


def test_a_missing_tensor_of_the_tower_is_named(tiny: Tiny, tmp_path: Path) -> None:
    name = "vision_tower.encoder.blocks.1.wo.weight"
    folder = without(tiny("kimi-k3"), tmp_path / "cut", name)
    with pytest.raises(InputError, match=name):
        load_vision(folder, F32)


def test_a_part_without_the_tower_is_a_text_model(tiny: Tiny, tmp_path: Path) -> None:
    folder = without(tiny("kimi-k3"), tmp_path / "text", "vision_tower.")
    assert load_vision(folder, F32) is None
