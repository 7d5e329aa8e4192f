"""Time and peak memory of reading one hostile header of 100 MB, each in a process of its own.

Run ``PYTHONPATH=. python benchmarks/hostile_headers.py`` from the root of the repository.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from k31ctl.fetch.headers import read_headers
from tests.fetch.hostile_headers import REFUSED, TAKEN

NAME = "model.safetensors"


def read(folder: Path) -> None:
    """Read the header in a folder and print what it took."""
    start, used = time.perf_counter(), time.process_time()
    (header,) = read_headers(folder, [NAME])
    seconds, used = time.perf_counter() - start, time.process_time() - used
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].split()[0]) / 1024  # of this program alone, unlike ru_maxrss
    said = (header.problems or (f"{len(header.tensors):,} tensors",))[0]
    sys.stdout.write(f"{seconds:6.2f} s {used:6.2f} s CPU {peak:5.0f} MiB  {said[:60]}\n")


def main() -> None:
    """Write and read every header, one after another."""
    if len(sys.argv) > 1:
        read(Path(sys.argv[1]))
        return
    made = {name: make for name, (make, _) in REFUSED.items()} | dict(TAKEN)
    for name, make in made.items():
        with tempfile.TemporaryDirectory() as folder:
            text = make()
            (Path(folder) / NAME).write_bytes(len(text).to_bytes(8, "little") + text)
            del text
            sys.stdout.write(f"{name:18}")
            sys.stdout.flush()
            subprocess.run([sys.executable, __file__, folder], check=True)


if __name__ == "__main__":
    main()
