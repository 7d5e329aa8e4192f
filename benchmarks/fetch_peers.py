"""A served folder against ``python -m http.server``, and copies from a peer against cp + sha256sum.

    python benchmarks/fetch_peers.py --folder DIR [--mib 256] [--runs 3]

Everything is made in DIR and on loopback. Four connections read four files at once with curl; the
runs of the two servers alternate, on files that the page cache holds.
"""

import argparse
import hashlib
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from k31ctl.fetch.hub import HubFile, Snapshot
from k31ctl.fetch.journal import Journal
from k31ctl.fetch.listing import write_listing
from k31ctl.fetch.manifest import manifest_file, manifest_of, write_manifest

REPO: Final = "bench/peers"
COMMIT: Final = "0" * 40
NUM_FILES: Final = 4
PORTS: Final = {"http.server": 8411, "k31ctl": 8412}


def node(folder: Path, mib: int) -> list[str]:
    """Fill a folder as a finished download leaves it; returns its files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    files, some = [], random.Random(1)
    for number in range(NUM_FILES):
        path = folder / f"model-{number}.safetensors"
        with path.open("wb") as stream:
            for _ in range(mib):
                stream.write(some.randbytes(2**20))
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        files.append(HubFile(path=path.name, size_bytes=mib * 2**20, sha256=digest, blob_id=None))
    snapshot = Snapshot(
        repo=REPO, endpoint="", commit=COMMIT, files=tuple(files), gated=None, licence=None
    )
    journal = Journal(folder)
    journal.begin(REPO)
    for file in files:
        journal.add(file, digest=file.sha256 or "", synced=True)
    journal.finish()
    write_listing(folder, snapshot, revision="main")
    entries = [manifest_file(file, sha256=file.sha256 or "", sources=()) for file in files]
    write_manifest(
        folder,
        manifest_of(
            snapshot, entries, revision="main", fetched_at="", acceptance=None, licence_texts=()
        ),
    )
    return [file.path for file in files]


@contextmanager
def server(name: str, folder: Path) -> Iterator[str]:
    """Run one of the servers; gives the address that files are under."""
    port = str(PORTS[name])
    if name == "k31ctl":
        command = ["-m", "k31ctl", "fetch", "--serve", "--to", str(folder), "--port", port]
        prefix = f"/{REPO}/resolve/main"
    else:
        command, prefix = ["-m", "http.server", port, "--directory", str(folder)], ""
    process = subprocess.Popen(
        [sys.executable, *command, *(["--host", "127.0.0.1"] if name == "k31ctl" else [])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(PORTS[name])
        yield f"http://127.0.0.1:{port}{prefix}"
    finally:
        process.send_signal(signal.SIGINT)
        _, _, used = os.wait4(process.pid, 0)
        print(f"  {name:12} {used.ru_utime + used.ru_stime:5.2f} s CPU of the server")  # noqa: T201


def wait_for(port: int) -> None:
    """Wait until something listens."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return


def read_all(address: str, files: list[str]) -> float:
    """Read all files at once and drop them; returns the seconds."""
    start = time.perf_counter()
    clients = [
        subprocess.Popen(["curl", "-sf", "-o", "/dev/null", f"{address}/{name}"]) for name in files
    ]
    if any(client.wait() for client in clients):
        raise SystemExit("curl failed")
    return time.perf_counter() - start


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of one piece of work."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def copied(folder: Path, peer: str) -> None:
    """Copy with our program, proving every byte against the peer's record."""
    options = ["--offline", "--from-peer", peer, "--json"]
    subprocess.run(
        [sys.executable, "-m", "k31ctl", "fetch", REPO, "--to", str(folder), *options],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def by_hand(source: Path, folder: Path, files: list[str]) -> None:
    """Copy with cp, have the disk confirm it, and read it again with sha256sum."""
    folder.mkdir(parents=True)
    names = [str(source / name) for name in files]
    subprocess.run(["cp", *names, str(folder)], check=True)
    subprocess.run(["sync", *[str(folder / name) for name in files]], check=True)
    subprocess.run(
        ["sha256sum", *[str(folder / name) for name in files]],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def main() -> None:
    """Run everything and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    files = node(given.folder / "node0", given.mib)
    total = NUM_FILES * given.mib
    seconds: dict[str, list[float]] = {name: [] for name in (*PORTS, "URL", "DIR", "cp")}
    target = given.folder / "copy"
    for _ in range(given.runs):
        for name in PORTS:
            with server(name, given.folder / "node0") as address:
                seconds[name].append(read_all(address, files))
                if name == "k31ctl":
                    shutil.rmtree(target, ignore_errors=True)
                    url = address.removesuffix(f"/{REPO}/resolve/main")
                    seconds["URL"].append(timed(lambda url=url: copied(target, url)))
        for name, work in (
            ("DIR", lambda: copied(target, str(given.folder / "node0"))),
            ("cp", lambda: by_hand(given.folder / "node0", target, files)),
        ):
            shutil.rmtree(target, ignore_errors=True)
            seconds[name].append(timed(work))
    shutil.rmtree(given.folder)
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    for name, found in middle.items():
        print(f"{name:12} {found:6.2f} s  {total / found:6.0f} MiB/s")  # noqa: T201
    print(f"server: {middle['http.server'] / middle['k31ctl']:.2f} x http.server")  # noqa: T201
    print(f"copy from a folder: {middle['cp'] / middle['DIR']:.2f} x cp and sha256sum")  # noqa: T201


if __name__ == "__main__":
    main()
