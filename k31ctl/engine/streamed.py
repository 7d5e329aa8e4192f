"""Experts that are read from the files when a token needs them, and kept within a budget of bytes.

Two shelves: their bytes as stored, in host memory, and the experts ready to compute with on the
device. The least recently used make room before anything new is read.
"""

import json
import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from k31ctl.core.expert_budget import Budget
from k31ctl.engine.tensors import DTYPES, Target, Tensors
from k31ctl.errors import InputError, RefusedError

T = TypeVar("T")
# Type, shape, and the first byte and the one behind the last.
Place = tuple[torch.dtype, list[int], int, int]
Build = Callable[[Tensors], Any]
Guess = Callable[[Tensor], Tensor]


class Shelf(Generic[T]):
    """Values of known size, the last used kept; never more bytes than the budget."""

    def __init__(self, budget_bytes: int, *, name: str) -> None:
        self.budget_bytes, self._name = budget_bytes, name
        self.held_bytes = self.most_bytes = 0
        self._held: OrderedDict[object, tuple[T, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: object) -> T | None:
        """A value that is here, from now on the last used."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(
        self, key: object, num_bytes: int, make: Callable[[], T], *, sized: Callable[[T], int]
    ) -> T:
        """Make room for so many bytes, then the value; raises RefusedError where it never fits.

        Others may use the shelf while the value is made.
        """
        if num_bytes > self.budget_bytes:
            raise RefusedError(
                f"one expert has {num_bytes:,} bytes, and {self.budget_bytes:,} are allowed",
                where=f"streamed experts, {self._name}",
                remedy=f"allow at least {num_bytes:,} bytes",
            )
        with self._lock:
            while self.held_bytes + num_bytes > self.budget_bytes:
                _, (_, freed) = self._held.popitem(last=False)
                self.held_bytes -= freed
            self.held_bytes += num_bytes
            self.most_bytes = max(self.most_bytes, self.held_bytes)
        kept_bytes = 0
        try:
            value = make()
            kept_bytes = min(num_bytes, sized(value))
        finally:
            with self._lock:
                self.held_bytes += kept_bytes - num_bytes
        with self._lock:
            self._held[key] = (value, kept_bytes)
        return value


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


class Source(StrEnum):
    """Where an expert was when it was needed, and how many were read before they were."""

    READY = "ready"
    HOST = "in host memory"
    FILE = "read"
    AHEAD = "read ahead"


class ExpertStore:
    """The experts of all layers; ``expect`` reads ahead what the next layer will likely ask for."""

    def __init__(self, files: ExpertFiles, names: Container[str], *, budget: Budget) -> None:
        self._files, self._names = files, names
        self._stored: Shelf[dict[str, Tensor]] = Shelf(budget.host_bytes, name="host memory")
        self._ready: dict[torch.device, Shelf[Any]] = {}
        self.budget, self.counts = budget, Counter(dict.fromkeys(Source, 0))
        self._layers: list[StreamedExperts] = []
        self._lock, self._pending = Lock(), dict[str, Future[None]]()
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="experts")

    @property
    def most_bytes(self) -> tuple[int, int]:
        """The most that was ever held: in host memory, and ready on one device."""
        return self._stored.most_bytes, max(s.most_bytes for s in self._ready.values())

    def uses(self) -> dict[str, int]:
        """How many experts were found where, so far."""
        return {str(source): number for source, number in self.counts.items()}

    def ready_bytes(self, device: torch.device) -> int:
        """What is held ready on a device now."""
        return self._ready[device].held_bytes if device in self._ready else 0

    def layer(
        self, prefix: str, build: Build, guess: Guess, target: Target, *, packed: bool
    ) -> "StreamedExperts":
        """The experts of one layer; ``packed`` ones stay as they are stored."""
        device = target.device
        if device not in self._ready:
            self._ready[device] = Shelf(self.budget.device_bytes, name=f"ready on {device}")
        itemsize = None if packed else target.dtype.itemsize
        made = StreamedExperts(self, self._ready[device], prefix, build, guess, itemsize)
        if self._layers:
            self._layers[-1].after = made
        self._layers.append(made)
        return made

    def is_near(self, prefix: str) -> bool:
        """Whether an expert is in host memory, or on its way there."""
        return prefix in self._pending or self._stored.get(prefix) is not None

    def ahead(self, prefixes: Iterable[str]) -> None:
        """Read experts in the background, as many as fill half of what host memory is allowed."""
        room = self.budget.host_bytes // 2
        for prefix in prefixes:
            room -= self._files.num_bytes(self._tensor_names(prefix))
            if room < 0:
                return
            with self._lock:
                if not self.is_near(prefix):
                    self._pending[prefix] = self._reader.submit(self._read_ahead, prefix)

    def _read_ahead(self, prefix: str) -> None:
        try:
            with suppress(InputError):  # whoever needs it reads again, and is told
                self._read(prefix, Source.AHEAD)
        finally:
            with self._lock:
                self._pending.pop(prefix, None)

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """The tensors of an expert as stored, read if need be."""
        with self._lock:
            pending = self._pending.get(prefix)
        if pending is not None:
            pending.result()
        if (found := self._stored.get(prefix)) is not None:
            self.counts[Source.HOST] += 1
            return found
        return self._read(prefix, Source.FILE)

    def _read(self, prefix: str, source: Source) -> dict[str, Tensor]:
        names = self._tensor_names(prefix)
        num_bytes = self._files.num_bytes(names)
        self.counts[source] += 1
        return self._stored.put(
            prefix, num_bytes, lambda: self._files.read(names), sized=lambda _: num_bytes
        )

    def _tensor_names(self, prefix: str) -> list[str]:
        ends = ("weight_packed", "weight_scale", "weight")
        possible = [f"{prefix}w{i}.{end}" for i in (1, 3, 2) for end in ends]
        return [name for name in possible if name in self._names]


class StreamedExperts:
    """The experts of one layer, by number, as a list of them would give them."""

    after: "StreamedExperts | None" = None

    def __init__(
        self,
        store: ExpertStore,
        ready: Shelf[Any],
        prefix: str,
        build: Build,
        guess: Guess,
        itemsize: int | None,
    ) -> None:
        self._store, self._ready, self._prefix = store, ready, prefix
        self._build, self._guess, self._itemsize = build, guess, itemsize

    def __getitem__(self, number: int) -> Any:
        """An expert, read if need be."""
        prefix = f"{self._prefix}{number}."
        if (found := self._ready.get(prefix)) is not None:
            self._store.counts[Source.READY] += 1
            return found
        tensors = self._store.tensors(prefix)
        named = Tensors(tensors.__getitem__, tensors, prefix=prefix)
        return self._ready.put(
            prefix,
            self._most_bytes(tensors),
            lambda: self._build(named),
            sized=lambda expert: expert.num_bytes,
        )

    def _most_bytes(self, tensors: Mapping[str, Tensor]) -> int:
        """What an expert takes at most once it is ready."""
        if self._itemsize is None:
            return sum(part.nbytes for part in tensors.values())
        return sum(
            part.numel() * self._itemsize * (2 if name.endswith("packed") else 1)
            for name, part in tensors.items()
            if not name.endswith("scale")
        )

    def expect(self, x_TD: Tensor) -> None:
        """Read ahead for the next layer: its router, given this layer's input, guesses well."""
        if (after := self.after) is None:
            return
        ranked = Counter(after._guess(x_TD).flatten().tolist()).most_common()
        prefixes = [f"{after._prefix}{number}." for number, _ in ranked]
        self._store.ahead(prefix for prefix in prefixes if after._ready.get(prefix) is None)
