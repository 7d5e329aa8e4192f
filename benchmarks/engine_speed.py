"""How fast the embedded engine is beside Transformers or mlx-lm, on one checkpoint and one CPU.

``.venv/bin/python benchmarks/engine_speed.py FOLDER --against transformers`` (or ``mlx``). Each
engine is a process of its own; they are timed in turn, so that what else the machine does meets
both, and the ratio counts. The logits behind the first prompt are compared before anything is
timed. ``--clock cpu`` counts processor time, which a busy machine distorts less than the wall's.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Protocol, cast

PROMPT = 512
MOST_RELATIVE_ERROR = 5e-5
ROOM = 512


class Engine(Protocol):
    """One engine with one checkpoint; ids are lists of equal length, one for each sequence."""

    def prefill(self, ids: list[list[int]]) -> Any:
        """Logits [B, V] behind fresh sequences, which replace those before."""

    def decode(self, ids: list[int]) -> Any:
        """Logits [B, V] behind one more token of each."""


class Ours:
    """The embedded engine."""

    def __init__(self, folder: str) -> None:
        import torch  # noqa: PLC0415

        from k31ctl.engine.checkpoint import load_model  # noqa: PLC0415
        from k31ctl.engine.tensors import Target  # noqa: PLC0415

        self._torch = torch
        target = Target(dtype=torch.float32, device=torch.device("cpu"))
        self._model, self._slots, self._length = load_model(Path(folder), target), [0], 0

    def _run(self, ids: list[list[int]]) -> Any:
        from k31ctl.engine.model import Segment  # noqa: PLC0415

        segments = [Segment(slot=s, start=self._length, length=len(ids[0])) for s in self._slots]
        self._length += len(ids[0])
        return self._model(self._torch.tensor(ids).flatten(), segments, self._cache)

    def prefill(self, ids: list[list[int]]) -> Any:
        """See ``Engine``."""
        room = len(ids[0]) + ROOM
        self._cache = self._model.cache(num_slots=len(ids), num_tokens=len(ids) * (room + 64))
        self._slots = [cast("int", self._cache.open(room)) for _ in ids]
        self._length = 0
        for begin in range(0, len(ids[0]), PROMPT):  # in pieces, as the scheduler does
            logits = self._run([row[begin : begin + PROMPT] for row in ids])
        return logits

    def decode(self, ids: list[int]) -> Any:
        """See ``Engine``."""
        return self._run([[token] for token in ids])


class Transformers:
    """Transformers' kimi_linear; fla is hidden, as its kernels need a GPU."""

    def __init__(self, folder: str) -> None:
        sys.modules["fla"] = None  # type: ignore[assignment]
        import torch  # noqa: PLC0415
        from transformers import AutoModelForCausalLM  # noqa: PLC0415

        torch.set_grad_enabled(False)
        self._torch, load = torch, AutoModelForCausalLM.from_pretrained
        self._model = load(folder, dtype=torch.float32).eval()  # type: ignore[no-untyped-call]

    def prefill(self, ids: list[list[int]]) -> Any:
        """See ``Engine``."""
        return self._run(ids, None)

    def decode(self, ids: list[int]) -> Any:
        """See ``Engine``."""
        return self._run([[token] for token in ids], self._cache)

    def _run(self, ids: list[list[int]], cache: Any) -> Any:
        tokens, given = self._torch.tensor(ids), {} if cache is None else {"cache": cache}
        said = self._model(input_ids=tokens, use_cache=True, logits_to_keep=1, **given)
        self._cache = said.cache
        return said.logits[:, -1]


class Mlx:
    """mlx-lm's kimi_linear and kimi_k3, driven as its own generation does it."""

    def __init__(self, folder: str) -> None:
        import mlx.core as mx  # noqa: PLC0415
        from mlx_lm.utils import load_model  # noqa: PLC0415

        mx.set_default_device(mx.cpu)
        self._mx, (self._model, _) = mx, load_model(Path(folder))
        self._model.set_dtype(mx.float32)
        mx.eval(self._model.parameters())

    def prefill(self, ids: list[list[int]]) -> Any:
        """See ``Engine``."""
        self._cache, tokens = self._model.make_cache(), self._mx.array(ids)
        for begin in range(0, len(ids[0]) - 1, PROMPT):
            self._model(tokens[:, begin : min(begin + PROMPT, len(ids[0]) - 1)], cache=self._cache)
            self._mx.eval([part.state for part in self._cache])
        return self.decode([row[-1] for row in ids])

    def decode(self, ids: list[int]) -> Any:
        """See ``Engine``."""
        said = self._model(self._mx.array(ids)[:, None], cache=self._cache)[:, -1]
        self._mx.eval(said)
        return said


ENGINES: dict[str, Callable[[str], Engine]] = {
    "ours": Ours,
    "transformers": Transformers,
    "mlx": Mlx,
}


def status_mb(key: str) -> float:
    """A line of the process's own status, in MB of 1,024 KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) / 1024


def work(options: Namespace) -> None:
    """Answer orders from standard input, one JSON document a line."""
    if options.engine != "mlx":
        import torch  # noqa: PLC0415

        torch.set_num_threads(options.threads)
    engine = ENGINES[options.engine](str(options.folder))
    clock = time.process_time if options.clock == "cpu" else time.perf_counter
    for line in sys.stdin:
        order = json.loads(line)
        Path("/proc/self/clear_refs").write_text("5")
        begin = clock()
        if order["do"] == "prefill":
            logits, seconds = engine.prefill(order["ids"]), [clock() - begin]
        else:
            seconds = []
            for ids in order["ids"]:
                begin = clock()
                logits = engine.decode(ids)
                seconds.append(clock() - begin)
        said = {"seconds": seconds, "logits": logits.tolist(), "peak_mb": status_mb("VmHWM")}
        print(json.dumps(said), flush=True)  # noqa: T201


@dataclass
class Worker:
    """An engine in a process of its own, and the seconds it took."""

    name: str
    process: subprocess.Popen[str]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)

    def ask(self, case: str, do: str, ids: object, *, keep: bool = True) -> list[list[float]]:
        """One order; the logits come back."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": do, "ids": ids}) + "\n")
        self.process.stdin.flush()
        said = json.loads(self.process.stdout.readline())
        if keep:
            self.seconds.setdefault(case, []).extend(said["seconds"])
            self.peak_mb[case] = max(self.peak_mb.get(case, 0.0), said["peak_mb"])
        return cast("list[list[float]]", said["logits"])


def started(name: str, options: Namespace) -> Worker:
    """A worker, with the number of threads in its environment."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(options.threads))
    command = [sys.executable, __file__, str(options.folder), "--engine", name]
    command += ["--threads", str(options.threads), "--clock", options.clock]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    return Worker(name=name, process=process)


def error(found: list[list[float]], expected: list[list[float]]) -> float:
    """The largest difference over the largest value."""
    most = max(abs(value) for row in expected for value in row)
    pairs = zip(found, expected, strict=True)
    return max(abs(a - b) for f, e in pairs for a, b in zip(f, e, strict=True)) / most


def token_ids(num_sequences: int, length: int) -> list[list[int]]:
    """Ids that every engine is given alike."""
    return [
        [(7919 * i + 104729 * s) % 16000 + 3 for i in range(length)] for s in range(num_sequences)
    ]


def measure(workers: list[Worker], options: Namespace) -> None:
    """All cases, the engines in turn."""
    for length in options.prefill:
        ids = token_ids(1, length)
        for turn in range(options.repeats + 1):
            for worker in workers:
                worker.ask(f"prefill {length}", "prefill", ids, keep=turn > 0)
    for case in options.decode:
        num_sequences, context = map(int, case.split("x"))
        ids = token_ids(num_sequences, context + options.steps * options.repeats)
        for worker in workers:
            worker.ask(case, "prefill", [row[:context] for row in ids], keep=False)
        for turn in range(options.repeats):
            begin = context + turn * options.steps
            steps = [[row[i] for row in ids] for i in range(begin, begin + options.steps)]
            for worker in workers:
                worker.ask(f"decode {case}", "decode", steps)


def main() -> None:
    """Compare, measure, print a table."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--engine", choices=ENGINES, help="be the process of this engine")
    parser.add_argument("--against", action="append", choices=("transformers", "mlx"), default=[])
    parser.add_argument("--prefill", type=int, nargs="*", default=[PROMPT])
    parser.add_argument("--decode", nargs="*", default=["1x32", "8x32"], metavar="BxCONTEXT")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    if options.engine:
        work(options)
        return
    workers = [started(name, options) for name in ("ours", *options.against)]
    logits = [w.ask("", "prefill", token_ids(1, PROMPT), keep=False) for w in workers]
    for worker, said in zip(workers[1:], logits[1:], strict=True):
        print(f"logits beside {worker.name}: {(far := error(logits[0], said)):.1e} apart")  # noqa: T201
        if far > MOST_RELATIVE_ERROR:
            sys.exit("these are two different models: nothing was timed")
    measure(workers, options)
    print(f"load {os.getloadavg()[0]:.1f}, {options.threads} threads, {options.clock} clock")  # noqa: T201
    for case in workers[0].seconds:
        for worker in workers:
            seconds, ours = worker.seconds[case], workers[0].seconds[case]
            print(  # noqa: T201
                f"{case:<16}{worker.name:<14}least {1e3 * min(seconds):>9.1f} ms"
                f"  median {1e3 * median(seconds):>9.1f} ms  {min(seconds) / min(ours):>5.2f}x"
                f"  {median(seconds) / median(ours):>5.2f}x  peak {worker.peak_mb[case]:>6.0f} MB"
            )
    for worker in workers:
        worker.process.kill()


if __name__ == "__main__":
    main()
