"""A checkpoint of some 48 MiB in two files, large enough for several chunks."""

import json
import random
from pathlib import Path
from types import SimpleNamespace

from tests.fetch.tiny_checkpoint import INDEX, write_shard

FILES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
MIB = 2**20


def write_large(folder: Path) -> dict[str, bytes]:
    """The files of a repository; layers 0 and 1 in the first, 2 and 3 in the second."""
    some, weight_map, files = random.Random(5), {}, {}
    for number, file in enumerate(FILES):
        tensors = {}
        for layer in (2 * number, 2 * number + 1):
            for kind, rows in (("a", 5 * MIB), ("b", 7 * MIB + 3)):
                name = f"model.layers.{layer}.{kind}.weight"
                tensors[name] = (SimpleNamespace(dtype="U8", shape=(rows,)), some.randbytes(rows))
                weight_map[name] = file
        path = folder / file
        write_shard(path, tensors)
        files[file] = path.read_bytes()
    files[INDEX] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    files["config.json"] = b'{"model_type": "x"}'
    files["LICENSE"] = b"you may"
    return files
