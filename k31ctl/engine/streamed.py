"""Experts that are read from the files when a token needs them, and kept within a budget of bytes.

Two shelves: their bytes as stored, in host memory, and the experts ready to compute with on the
device. The least recently used make room before anything new is read.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from k31ctl.core.expert_budget import Budget
from k31ctl.engine.expert_files import ExpertFiles
from k31ctl.engine.tensors import Target, Tensors
from k31ctl.errors import InputError, RefusedError

T = TypeVar("T")
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


class Numbered(Protocol):
    """Experts by number, as in a list."""

    def __getitem__(self, number: int, /) -> Any:
        """One that takes rows and says something of each."""


def one_by_one(experts: Numbered, z_NL: Tensor, counts: list[int]) -> Tensor:
    """What they say of rows that are sorted by expert; one may leave before the next comes."""
    parts = enumerate(z_NL.split(counts))
    return torch.cat([experts[number](part) for number, part in parts if len(part)])


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
        ready, itemsize = self._ready[device], target.dtype.itemsize
        made = StreamedExperts(
            self, ready, prefix, build, guess=guess, itemsize=itemsize, packed=packed
        )
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
    """The experts of one layer."""

    after: "StreamedExperts | None" = None

    def __init__(
        self,
        store: ExpertStore,
        ready: Shelf[Any],
        prefix: str,
        build: Build,
        *,
        guess: Guess,
        itemsize: int,
        packed: bool,
    ) -> None:
        self._store, self._ready, self._prefix = store, ready, prefix
        self._build, self._guess = build, guess
        self._itemsize, self._stays_packed = itemsize, packed

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

    def __call__(self, z_NL: Tensor, counts: list[int]) -> Tensor:
        """What the experts say of rows that are sorted by expert."""
        return one_by_one(self, z_NL, counts)

    def _most_bytes(self, tensors: Mapping[str, Tensor]) -> int:
        """What an expert takes at most once it is ready."""
        if self._stays_packed and any(name.endswith("packed") for name in tensors):
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
