"""Checkpoints that are damaged as real ones get damaged, one tensor or one file at a time."""

import hashlib
import json
from pathlib import Path


def place_of(folder: Path, tensor: str) -> tuple[Path, int, int]:
    """The file of a tensor, and its bytes in it."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    path = folder / index["weight_map"][tensor]
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        begin, end = json.loads(file.read(length))[tensor]["data_offsets"]
    return path, 8 + length + begin, 8 + length + end


def read(folder: Path, tensor: str) -> bytes:
    path, begin, end = place_of(folder, tensor)
    return path.read_bytes()[begin:end]


def write(folder: Path, tensor: str, data: bytes) -> None:
    path, begin, end = place_of(folder, tensor)
    assert len(data) == end - begin
    content = bytearray(path.read_bytes())
    content[begin:end] = data
    path.write_bytes(content)


def flip_bit(folder: Path, tensor: str, *, byte: int, bit: int) -> None:
    data = bytearray(read(folder, tensor))
    data[byte] ^= 1 << bit
    write(folder, tensor, bytes(data))


def swap_values(folder: Path, first: str, second: str) -> None:
    one, other = read(folder, first), read(folder, second)
    write(folder, first, other)
    write(folder, second, one)


def swap_names(folder: Path, first: str, second: str) -> None:
    """Exchange two names in a header: each now has the other's shape."""
    path = place_of(folder, first)[0]
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header[first], header[second] = header[second], header[first]
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(content[:8] + text.ljust(length) + content[8 + length :])


def cut_out(folder: Path, part: Path, layers: range) -> None:
    """A part with some layers alone, as fetch leaves it: own headers, own index, a mark."""
    names = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    kept = [n for n in names if any(f".model.layers.{layer}." in n for layer in layers)]
    part.mkdir()
    (part / "config.json").write_bytes((folder / "config.json").read_bytes())
    header: dict[str, object] = {}
    values = b""
    for name in kept:
        data = read(folder, name)
        path = place_of(folder, name)[0]
        content = path.read_bytes()
        own = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])[name]
        header[name] = {**own, "data_offsets": [len(values), len(values) + len(data)]}
        values += data
    text = json.dumps(header).encode()
    file = "model-00001-of-000002.safetensors"
    (part / file).write_bytes(len(text).to_bytes(8, "little") + text + values)
    index = {"metadata": {"total_size": len(values)}, "weight_map": dict.fromkeys(kept, file)}
    (part / "model.safetensors.index.json").write_text(json.dumps(index))
    mark: dict[str, object] = {
        "schema": "k31ctl/partial/v1",
        "source": "tiny",
        "selection": "some layers",
    }
    mark |= {"layers": list(layers), "experts": None, "tensors": [], "rank": None}
    (part / "k31ctl-partial.json").write_text(json.dumps(mark))


def keep_record(folder: Path) -> None:
    """What the hub's own client leaves beside what it has fetched: SHA-256 of large files."""
    records = folder / ".cache" / "huggingface" / "download"
    records.mkdir(parents=True)
    for path in folder.glob("*.safetensors"):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        (records / f"{path.name}.metadata").write_text(f"{'0' * 40}\n{digest}\n1.0\n")
