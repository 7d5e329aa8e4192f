"""Experts in the files of a checkpoint: where their tensors lie, and reading them at once."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from k31ctl.engine.tensors import DTYPES
from k31ctl.errors import InputError

# Type, shape, and the first byte and the one behind the last.
Place: TypeAlias = tuple[torch.dtype, list[int], int, int]


class ExpertFiles:
    """Where the tensors of experts lie, and their bytes in one read where they adjoin."""

    def __init__(self, folder: Path, files: dict[str, str]) -> None:
        self._folder, self._files = folder, files
        self._headers: dict[str, tuple[int, dict[str, Place]]] = {}
        self._states: dict[str, tuple[int, int, int]] = {}

    def num_bytes(self, names: Iterable[str]) -> int:
        """Bytes of some tensors."""
        return sum(end - begin for _, _, begin, end in (self._place(name) for name in names))

    def read(self, names: list[str]) -> dict[str, Tensor]:
        """Tensors of one file; raises InputError where the file ends early or cannot be read."""
        places = {name: self._place(name) for name in names}
        begin = min(place[2] for place in places.values())
        end = max(place[3] for place in places.values())
        files = {self._files[name] for name in names}
        if len(files) == 1 and end - begin == self.num_bytes(names):
            block = self._bytes(files.pop(), begin, end)
            parts = {name: block[p[2] - begin : p[3] - begin] for name, p in places.items()}
        else:
            parts = {n: self._bytes(self._files[n], p[2], p[3]) for n, p in places.items()}
        return {
            name: part.view(places[name][0]).view(places[name][1]) for name, part in parts.items()
        }

    def _bytes(self, file: str, begin: int, end: int) -> Tensor:
        buffer, done = bytearray(end - begin), 0
        try:
            descriptor = os.open(self._folder / file, os.O_RDONLY)
            try:
                found = os.fstat(descriptor)
                while got := os.preadv(descriptor, [memoryview(buffer)[done:]], begin + done):
                    done += got
            finally:
                os.close(descriptor)
        except OSError as error:
            raise self._damaged(file, error.strerror or "the read failed") from None
        if done < len(buffer):
            raise self._damaged(file, f"it ends at byte {found.st_size:,}, and {end:,} are needed")
        if self._states.setdefault(file, _state(found)) != _state(found):
            raise self._damaged(file, "it is not the file any more that was opened at first")
        return torch.frombuffer(buffer, dtype=torch.uint8)

    def _place(self, name: str) -> Place:
        file = self._files[name]
        if file not in self._headers:
            self._headers[file] = self._header(file)
        start, places = self._headers[file]
        if name not in places:
            raise self._damaged(file, f"{name} is not in it, or of no type that is computed with")
        dtype, shape, begin, end = places[name]
        return dtype, shape, start + begin, start + end

    def _header(self, file: str) -> tuple[int, dict[str, Place]]:
        """Read anew: what safetensors opened at loading does not tell its offsets."""
        size = int.from_bytes(self._bytes(file, 0, 8).numpy().tobytes(), "little")
        try:
            found = json.loads(self._bytes(file, 8, 8 + size).numpy().tobytes())
        except (ValueError, MemoryError, OverflowError):
            raise self._damaged(file, "its header is none") from None
        places = {
            name: (DTYPES[each["dtype"]], list(each["shape"]), *each["data_offsets"])
            for name, each in found.items()
            if name in self._files and each["dtype"] in DTYPES
        }
        return 8 + size, places

    def _damaged(self, file: str, why: str) -> InputError:
        return InputError(
            f"{file} cannot be read: {why}",
            where=str(self._folder),
            remedy="k31ctl verify says what is wrong with it",
        )


def _state(found: os.stat_result) -> tuple[int, int, int]:
    """What changes when a file is written to or replaced."""
    return found.st_ino, found.st_size, found.st_mtime_ns
