"""Time and memory of ``inspect`` on a checkpoint with all of Kimi K3's tensors.

The 96 shards are sparse files: their headers are whole, their data are holes, so 1.56 TB take some
80 MB of disk. Run ``python benchmarks/inspect_k3.py [FOLDER] [--hub]``; without a folder the
fixture is made in a temporary one and removed. With ``--hub`` it is read from a hub on loopback.
"""

import json
import os
import resource
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from loopback_hub import serving

from k31ctl.catalog.models import load_model
from k31ctl.catalog.store import Store, default_folders
from k31ctl.core.inventory import inventory
from k31ctl.core.model import Model
from k31ctl.core.tensors import TensorTemplate
from k31ctl.fetch.inspection import inspect_checkpoint
from k31ctl.fetch.remote_inspection import inspect_hub

NUM_SHARDS = 96
MODEL = "kimi-k3"
REPO = "moonshotai/Kimi-K3"


def tensors(model: Model) -> Iterator[tuple[str, TensorTemplate]]:
    """Yield every tensor of a model, template by template."""
    for template in model.templates:
        for name in template.names():
            yield name, template


def write_fixture(folder: Path, model: Model) -> None:
    """Write the shards and the index; tensors fill one shard after another."""
    total = inventory(model).total_bytes
    shards: list[dict[str, object]] = [{} for _ in range(NUM_SHARDS)]
    sizes = [0] * NUM_SHARDS
    weight_map = {}
    written = 0
    for name, template in tensors(model):
        shard = min(NUM_SHARDS - 1, written * NUM_SHARDS // total)
        begin, end = sizes[shard], sizes[shard] + template.tensor_bytes
        offsets = {"data_offsets": [begin, end]}
        shards[shard][name] = {"dtype": template.dtype, "shape": template.shape, **offsets}
        weight_map[name] = f"model-{shard + 1:05d}-of-{NUM_SHARDS:06d}.safetensors"
        sizes[shard], written = end, written + template.tensor_bytes
    for shard, header in enumerate(shards):
        text = json.dumps(header, separators=(",", ":")).encode()
        path = folder / f"model-{shard + 1:05d}-of-{NUM_SHARDS:06d}.safetensors"
        path.write_bytes(struct.pack("<Q", len(text)) + text)
        os.truncate(path, 8 + len(text) + sizes[shard])
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def fixture_made_apart(folder: Path, model: Model) -> None:
    """Make the fixture in a child process, so that its memory is not in the figure."""
    if not (folder / "model.safetensors.index.json").exists():
        child = os.fork()
        if child == 0:
            write_fixture(folder, model)
            os._exit(0)
        os.waitpid(child, 0)


def main() -> None:
    """Print the verdict, wall and processor seconds and the peak of resident memory.

    Both are of inspecting alone; the program's start comes on top (benchmarks/plan_startup.py).
    """
    store = Store(default_folders())
    named = [text for text in sys.argv[1:] if text != "--hub"]
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as stack:
        folder = Path(named[0] if named else temporary)
        fixture_made_apart(folder, load_model(store, MODEL))
        hub = stack.enter_context(serving(folder, REPO)) if "--hub" in sys.argv else None
        start, used = time.perf_counter(), time.process_time()
        if hub is None:
            found = inspect_checkpoint(store, str(folder), model_spec=MODEL)
        else:
            found = inspect_hub(store, f"hub:{REPO}", model_spec=MODEL, endpoints=[hub.url])
        seconds, used = time.perf_counter() - start, time.process_time() - used
        asked = f", {hub.num_requests()} requests" if hub else ""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"proven {found.is_proven}, {found.difference.num_tensors:,} tensors, "
        f"{found.difference.total_bytes:,} bytes{asked}\n{seconds:.2f} s, {used:.2f} s CPU, "
        f"peak {peak:.0f} MiB; load of the machine {os.getloadavg()[0]:.1f}\n"
    )


if __name__ == "__main__":
    main()
