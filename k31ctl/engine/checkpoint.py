"""A checkpoint folder as released: config.json, shards of safetensors, and their index."""

from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from k31ctl.catalog.json_text import read_json_config
from k31ctl.core.expert_budget import Budget
from k31ctl.engine.config import EngineConfig, engine_config
from k31ctl.engine.expert_files import ExpertFiles
from k31ctl.engine.model import Model
from k31ctl.engine.streamed import ExpertStore
from k31ctl.engine.tensors import DTYPES, Target, Tensors
from k31ctl.engine.vision import VisionEncoder
from k31ctl.engine.vision_shape import refuse_other_images, vision_shape
from k31ctl.errors import InputError
from k31ctl.outside_json import parsed

_INDEX: Final = "model.safetensors.index.json"
_TEXT_PREFIX: Final = "language_model."


class Checkpoint:
    """Every tensor of a folder; ``files`` says where each is, and one is read when asked for."""

    @classmethod
    def at(cls, source: "Path | Checkpoint") -> "Checkpoint":
        """The checkpoint of a folder, or the one that is open already."""
        return source if isinstance(source, Checkpoint) else cls(source)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, Any] = {}
        self.files = _weight_map(folder) or {
            name: path.name
            for path in sorted(folder.glob("*.safetensors"))
            for name in self._file(path.name).keys()  # noqa: SIM118 - not a mapping
        }
        if not self.files:
            raise InputError(
                "no safetensors file here", where=str(folder), remedy="name a checkpoint's folder"
            )

    @cached_property
    def config(self) -> EngineConfig:
        """The text model that its config.json describes."""
        config, where = read_json_config(self.folder)
        return engine_config(config, where=str(where))

    @cached_property
    def prefix(self) -> str:
        """What stands in front of the names of the text model."""
        return _TEXT_PREFIX if any(name.startswith(_TEXT_PREFIX) for name in self.files) else ""

    def tensor(self, name: str) -> Tensor:
        """One tensor, read now."""
        try:
            found: Tensor = self._file(self.files[name]).get_tensor(name)
        except SafetensorError as error:
            raise self._damaged(self.files[name], error) from None
        return found

    def shape_of(self, name: str) -> Tensor:
        """A tensor without values, from the header alone."""
        try:
            part = self._file(self.files[name]).get_slice(name)
        except SafetensorError as error:
            raise self._damaged(self.files[name], error) from None
        dtype = DTYPES.get(part.get_dtype())
        if dtype is None:
            raise InputError(
                f"{name} is {part.get_dtype()}, which the engine does not compute with",
                where=str(self.folder / self.files[name]),
                remedy="use the release's own bf16 and MXFP4 tensors",
            )
        return torch.empty(part.get_shape(), dtype=dtype, device="meta")

    def _file(self, name: str) -> Any:
        if name not in self._open:
            try:
                self._open[name] = safe_open(self.folder / name, framework="pt")
            except FileNotFoundError:
                raise InputError(
                    f"{name} is not here: this is a part of a checkpoint",
                    where=str(self.folder),
                    remedy="fetch the rest, or name a whole checkpoint",
                ) from None
            except (OSError, SafetensorError) as error:
                raise self._damaged(name, error) from None
        return self._open[name]

    def _damaged(self, file: str, error: Exception) -> InputError:
        return InputError(
            f"{file} cannot be read: {str(error)[:120]}",
            where=str(self.folder),
            remedy="k31ctl verify says what is wrong with it",
        )


def load_model(
    source: Path | Checkpoint,
    target: Target,
    *,
    layers: range | None = None,
    packed_experts: bool = False,
    streamed: Budget | None = None,
    devices: Mapping[int, torch.device] | None = None,
) -> Model:
    """Read a checkpoint; ``layers`` builds some of them, ``packed_experts`` keeps MXFP4 packed.

    With ``streamed``, experts are read when they are needed, within this budget. ``devices`` are
    those of layers that live elsewhere than on the target's.

    The whole model is laid out from the headers first, so that a missing tensor or a wrong shape
    is told before the first gigabyte is read.
    """
    checkpoint = Checkpoint.at(source)
    config, files, prefix = checkpoint.config, checkpoint.files, checkpoint.prefix
    if layers is not None and not (0 <= layers.start < layers.stop <= config.num_layers):
        raise InputError(
            f"layers {layers.start} to {layers.stop - 1} are not all there",
            where=str(checkpoint.folder),
            remedy=f"name layers from 0 to {config.num_layers - 1}",
        )
    build = partial(Model, config=config, layers=layers, packed_experts=packed_experts)
    nowhere = Target(dtype=target.dtype, device=torch.device("meta"))
    build(Tensors(checkpoint.shape_of, files, prefix=prefix), target=nowhere)
    store = None
    if streamed is not None:
        store = ExpertStore(ExpertFiles(checkpoint.folder, files), files, budget=streamed)
    tensors = Tensors(checkpoint.tensor, files, prefix=prefix)
    return build(tensors, target=target, store=store, devices=devices)


def load_vision(source: Path | Checkpoint, target: Target) -> VisionEncoder | None:
    """Read the image encoder of a checkpoint.

    None where its config.json names none, or where this part of a checkpoint has nothing of it.
    """
    checkpoint = Checkpoint.at(source)
    config, where = read_json_config(checkpoint.folder)
    shape = vision_shape(config, where=str(where))
    if shape is None or not any(name.startswith("vision_tower.") for name in checkpoint.files):
        return None
    refuse_other_images(checkpoint.folder, shape.sizes)
    nowhere = Target(dtype=target.dtype, device=torch.device("meta"))
    VisionEncoder(Tensors(checkpoint.shape_of, checkpoint.files), shape, nowhere)
    return VisionEncoder(Tensors(checkpoint.tensor, checkpoint.files), shape, target)


def _weight_map(folder: Path) -> dict[str, str] | None:
    path = folder / _INDEX
    if not path.exists():
        return None
    try:
        found = parsed(path.read_bytes())["weight_map"]
        names = {str(name): Path(file).name for name, file in found.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(
            "the index is not readable", where=str(path), remedy="fetch the index again"
        ) from None
    return names
