"""How fast ``k31ctl verify`` reads, beside as many processes of ``sha256sum`` on the same files.

    PYTHONPATH=. python benchmarks/verify_speed.py FOLDER [--files 2] [--mib 1024] [--runs 5]

The folder gets a tiny checkpoint, so that every level has something to look at, and two files of
random bytes; it has to be on a disk with room for them and in memory for the page cache, which a
first reading fills. The two programs take turns, and whole processes are timed. The bar is 0.9.
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fetch.tiny_checkpoint import write_tiny

PIECE = 1 << 20
OURS = "k31ctl verify"


def write_fixture(folder: Path, *, num_files: int, mib: int) -> list[Path]:
    """Write the checkpoint, the large files and the record of all; returns the large files."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tiny(folder)
    large = [folder / f"ballast-{number}.bin" for number in range(num_files)]
    for path in large:
        with path.open("wb") as stream:
            for _ in range(mib):
                stream.write(os.urandom(PIECE))
    entries = [
        {"path": path.name, "size_bytes": path.stat().st_size, "sha256": sha256(path)}
        for path in sorted(folder.iterdir())
        if path.is_file() and path.name != "k31ctl-manifest.json"
    ]
    (folder / "k31ctl-manifest.json").write_text(json.dumps({"files": entries}))
    return large


def sha256(path: Path) -> str:
    """Digest of a file, which also brings it into the page cache."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def seconds_of(commands: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Wall and processor seconds of programs that run side by side."""
    before = os.times()
    start = time.perf_counter()
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    if any([child.wait() for child in running]):
        raise SystemExit(f"failed: {commands}")
    wall, after = time.perf_counter() - start, os.times()
    used = after.children_user + after.children_system
    return wall, used - before.children_user - before.children_system


def main() -> None:
    """Print the medians of both and the ratio of their speeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=2)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    large = write_fixture(given.folder, num_files=given.files, mib=given.mib)
    verify = [sys.executable, "-m", "k31ctl", "verify", str(given.folder), "--again"]
    commands = {
        "sha256sum": [["sha256sum", str(path)] for path in large],
        OURS: [[*verify, "--jobs", str(given.files)]],
    }
    if shutil.which("openssl"):  # as quick as the processor; sha256sum need not be
        commands["openssl dgst"] = [["openssl", "dgst", "-sha256", str(path)] for path in large]
    rows: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(given.runs):
        for name, programs in commands.items():
            rows[name].append(seconds_of(programs))
    num_bytes = given.files * given.mib * PIECE
    for name, found in rows.items():
        wall, used = (statistics.median(column) for column in zip(*found, strict=True))
        sys.stdout.write(
            f"{name:14} {wall:6.2f} s {num_bytes / wall / 1e6:6.0f} MB/s  {used:6.2f} s CPU\n"
        )
    for name in (name for name in rows if name != OURS):
        pairs = zip(rows[name], rows[OURS], strict=True)
        ratios = [(theirs[0] / ours[0], theirs[1] / ours[1]) for theirs, ours in pairs]
        wall, used = (statistics.median(column) for column in zip(*ratios, strict=True))
        sys.stdout.write(f"{wall:.2f} times the speed of {name}, by CPU {used:.2f}\n")
    sys.stdout.write(f"load of the machine {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main()
