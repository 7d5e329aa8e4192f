"""One process at a time on one target, also where the filesystem's own locks do nothing.

``flock`` ends with its process and is enough on one machine. Some network filesystems answer it
without locking, so the holder also writes who it is and touches the file; another machine goes by
whether that touching goes on, and so does a container that does not see the holder's processes.
"""

import fcntl
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from k31ctl.errors import RefusedError
from k31ctl.fetch.journal import STATE_FOLDER, boot_id
from k31ctl.fetch.own_places import opened, require_own_places
from k31ctl.outside_json import parsed

_TOUCH_S: Final = 5.0
_SILENT_S: Final = 60.0
_LOOK_S: Final = 0.25


@contextmanager
def locked(folder: Path, *, wait: bool, on_wait: Callable[[str], None]) -> Iterator[None]:
    """Hold a target folder; ``on_wait`` is told once who has it.

    Raises RefusedError where another process has it and ``wait`` is false.
    """
    state_folder = folder / STATE_FOLDER
    require_own_places(folder)
    state_folder.mkdir(parents=True, exist_ok=True)
    path = state_folder / "lock"
    handle = opened(path, os.O_RDWR | os.O_CREAT)
    try:
        nonce = _taken(handle, path, wait=wait, on_wait=on_wait)
        ended = threading.Event()
        touching = threading.Thread(target=_touch, args=(handle, ended), daemon=True)
        touching.start()
        try:
            yield
        finally:
            ended.set()
            touching.join()
            if _owner(handle).get("nonce") == nonce:
                os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _taken(handle: int, path: Path, *, wait: bool, on_wait: Callable[[str], None]) -> str:
    told = False
    seen: tuple[object, float] | None = None
    silent_s = _silent_s(handle, path)
    while True:
        free = _flocked(handle)
        owner = _owner(handle)
        mark = (owner.get("nonce"), os.fstat(handle).st_mtime_ns)
        if seen is None:
            seen = (mark, time.monotonic() - silent_s)
        elif seen[0] != mark:
            seen = (mark, time.monotonic())
        if free and not _alive(owner, silent_s=time.monotonic() - seen[1]):
            nonce = _claimed(handle)
            if nonce is not None:
                return nonce
        if free:
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
        holder = f"process {owner.get('pid', '?')} on {owner.get('host', 'another machine')}"
        if not wait:
            raise RefusedError(
                f"{holder} is fetching into this folder",
                where=str(path),
                remedy="wait for it, or leave out --no-wait to do so here",
                rule="fetch-locked",
            )
        if not told:
            on_wait(holder)
            told = True
        time.sleep(_LOOK_S)


def _silent_s(handle: int, path: Path) -> float:
    """Return for how long the file was not touched, by the clock of its own filesystem.

    The clocks of two machines may differ; a file that is made now has the same clock's time.
    """
    probe = path.with_name(f"probe-{secrets.token_hex(4)}")
    try:
        probe.touch()
        now = probe.stat().st_mtime
    finally:
        probe.unlink(missing_ok=True)
    return max(0.0, now - os.fstat(handle).st_mtime)


def _flocked(handle: int) -> bool:
    """Return whether the file is locked by us, or cannot be locked on this filesystem."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _owner(handle: int) -> dict[str, Any]:
    try:
        found = parsed(os.pread(handle, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _alive(owner: dict[str, Any], *, silent_s: float) -> bool:
    if not owner:
        return False
    if {name: owner.get(name) for name in _machine()} == _machine():
        return owner.get("started") == _started(owner.get("pid", 0)) is not None
    return silent_s < _SILENT_S


def _claimed(handle: int) -> str | None:
    """Write that we hold the file; returns None where another wrote at the same time."""
    nonce = secrets.token_hex(8)
    record = {
        "nonce": nonce,
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    } | _machine()
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(record).encode(), 0)
    with suppress(OSError):
        os.fsync(handle)
    time.sleep(0.02)
    return nonce if _owner(handle).get("nonce") == nonce else None


def _machine() -> dict[str, str]:
    """Return what names this machine, and the processes that are seen from here."""
    try:
        seen = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        seen = ""
    return {"host": socket.gethostname(), "boot_id": boot_id(), "processes": seen}


def _started(pid: int) -> str | None:
    """Return when a process of this machine began, None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()[19]


def _touch(handle: int, ended: threading.Event) -> None:
    while not ended.wait(_TOUCH_S):
        with suppress(OSError):
            os.utime(handle)
