"""Targets that cannot take the files: told before the first byte, or survived where it comes later.

Small filesystems are mounted, which needs root; permissions are tried without root's privileges.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from k31ctl.errors import RefusedError
from k31ctl.fetch.events import Planned, Progress
from tests.fetch.conftest import Fetch, command, environment, is_whole
from tests.fetch.direct import Download
from tests.fetch.hub_server import HubServer

DROPPED = "--bounding-set=-dac_override,-dac_read_search,-fowner"
BIG = "big.safetensors"
Mount = Callable[[str], Path]


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A small filesystem of its own, as long as the block lasts."""
    folder.mkdir()
    asked = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"a filesystem cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    if shutil.which("mount") is None or os.geteuid():
        pytest.skip("to mount a filesystem needs root")
    with ExitStack() as held:
        yield lambda options: held.enter_context(mounted(tmp_path / "mounted", options))


@pytest.fixture
def folding(tmp_path: Path) -> Iterator[Path]:
    """A filesystem where names in any case are one, with neither links nor locks."""
    folder = tmp_path / "folding"
    folder.mkdir()
    if os.geteuid() or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("a filesystem of one's own needs root and /dev/fuse")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.fetch.folding_filesystem", str(folder)],
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while not folder.is_mount():
            if server.poll() is not None:
                pytest.skip(f"FUSE cannot be mounted here: {server.communicate()[1][-200:]}")
            time.sleep(0.02)
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
        server.kill()
        server.communicate()


def without_privileges(hub: HubServer, folder: Path, *options: str) -> tuple[int, str]:
    """Exit code and messages of the program, run as one that permissions bind."""
    setpriv = ["setpriv", DROPPED, "--"] if os.geteuid() == 0 else []
    if setpriv and subprocess.run([*setpriv, "true"], check=False).returncode:
        pytest.skip("root writes everywhere, and setpriv cannot take that away here")
    done = subprocess.run(
        [*setpriv, *command(hub, folder, *options)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_folder_without_the_right_to_write_is_refused(
    hub: HubServer, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "w").mkdir(mode=0o555)
    code, told = without_privileges(hub, tmp_path / "w", *options)
    assert (code, told.splitlines()[0]) == (
        4,
        "error: the target cannot be written: permission denied",
    )
    assert hub.num_bytes() == 0
    assert not list((tmp_path / "w").iterdir())


def test_a_folder_that_another_user_began_is_one_clear_error(
    hub: HubServer, tmp_path: Path
) -> None:
    Download(hub, tmp_path / "w").finish()
    (tmp_path / "w" / ".k31ctl" / "lock").chmod(0o444)
    code, told = without_privileges(hub, tmp_path / "w")
    assert (code, len(told.splitlines())) == (4, 3)
    assert "permission denied" in told
    assert "yours to write" in told


def test_a_read_only_filesystem_is_refused_and_loses_nothing(hub: HubServer, mount: Mount) -> None:
    folder = mount("size=64m")
    Download(hub, folder / "w").finish()
    hub.files = hub.files | {BIG: b"new"}
    hub.forget()
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    for target in (folder / "w", folder / "other"):
        with pytest.raises(RefusedError, match="read-only file system"):
            Download(hub, target).finish()
    assert hub.num_bytes() == 0
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
    assert Download(hub, folder / "w").finish().bytes_downloaded == 3
    assert is_whole(hub, folder / "w")


def test_a_disk_that_is_too_small_is_refused_before_the_first_byte(
    hub: HubServer, mount: Mount
) -> None:
    folder = mount("size=4m")
    with pytest.raises(RefusedError, match=f"are needed on {folder}") as refused:
        Download(hub, folder / "w").finish()
    assert (refused.value.rule, hub.num_bytes()) == ("fetch-disk-space", 0)


def test_too_few_inodes_are_refused_before_the_first_byte(hub: HubServer, mount: Mount) -> None:
    folder = mount("size=64m,nr_inodes=60")
    hub.files = {f"{number}.json": b"{}" for number in range(40)}
    with pytest.raises(RefusedError, match="80 inodes are needed") as refused:
        Download(hub, folder / "w").finish()
    assert (refused.value.rule, hub.num_bytes()) == ("fetch-inodes", 0)
    hub.files = {f"{number}.json": b"{}" for number in range(20)}
    Download(hub, folder / "w").finish()
    assert is_whole(hub, folder / "w")
    assert Download(hub, folder / "w").finish().bytes_downloaded == 0  # none are needed any more


def test_a_disk_that_another_fills_meanwhile_loses_nothing(hub: HubServer, mount: Mount) -> None:
    folder = mount("size=64m")
    hub.files = {BIG: os.urandom(32 * 2**20), "small.json": b"{}"}
    hub.fault = lambda answer: setattr(answer, "rate", 16e6)
    download = Download(hub, folder / "w")
    download.until(Planned)
    while hub.num_bytes() < 8 * 2**20:
        download.events.append(next(download.steps))
    with suppress(OSError), (folder / "theirs").open("wb", buffering=0) as theirs:
        while True:
            theirs.write(bytes(2**20))
    with pytest.raises(RefusedError, match="no space left on device") as full:
        download.finish()
    assert "goes on from here" in full.value.remedy
    with pytest.raises(RefusedError, match=r"no space left on device|are needed on"):
        Download(hub, folder / "w").finish()
    (folder / "theirs").unlink()
    hub.fault = lambda _: None
    finished = Download(hub, folder / "w").finish()
    assert finished.bytes_reused > 2 * 2**20
    assert is_whole(hub, folder / "w")


def test_a_disk_with_room_for_hardly_anything_is_told_as_that(hub: HubServer, mount: Mount) -> None:
    """Whatever is the first to find no room: the look at the folder, the lock, the journal."""
    folder = mount("size=64m")
    Download(hub, folder / "w").finish()
    (folder / "w" / "k31ctl-manifest.json").unlink()
    theirs = folder / "theirs"
    with suppress(OSError), theirs.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    ended = []
    for _ in range(5):
        try:
            ended.append(Download(hub, folder / "w").finish().is_proven)
        except RefusedError as full:
            assert "no space left on device" in full.what
            ended.append(False)
        assert not list((folder / "w").rglob("*.tmp"))
        os.truncate(theirs, theirs.stat().st_size - 4096)
    assert ended == sorted(ended)
    assert set(ended) == {False, True}
    assert is_whole(hub, folder / "w")


def test_a_filesystem_that_follows_no_links_is_enough(hub: HubServer, mount: Mount) -> None:
    folder = mount("size=64m,nosymfollow")
    Download(hub, folder / "w").finish()
    assert is_whole(hub, folder / "w")
    assert not [path for path in folder.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("other", ["Config.JSON", "ﬁle/config.json"])
def test_two_names_that_would_be_one_are_refused_before_the_first_byte(
    hub: HubServer, folding: Path, tmp_path: Path, other: str
) -> None:
    hub.files |= {other: b"{}", other.replace("ﬁ", "FI"): b"[]"}
    with pytest.raises(RefusedError, match="are one file on this case-insensitive") as refused:
        Download(hub, folding / "w").finish()
    assert (refused.value.rule, hub.num_bytes()) == ("fetch-case", 0)
    assert "--exclude" in refused.value.remedy
    Download(hub, tmp_path / "w").finish()
    assert is_whole(hub, tmp_path / "w")


def test_a_filesystem_without_case_links_and_locks_is_enough(hub: HubServer, folding: Path) -> None:
    hub.fault = lambda answer: setattr(answer, "rate", 4e6)
    first = Download(hub, folding / "w")
    first.until(Planned)
    with pytest.raises(RefusedError, match="is fetching into this folder"):
        Download(hub, folding / "w", wait=False).finish()
    first.until(Progress)
    first.steps.close()
    hub.fault = lambda _: None
    assert Download(hub, folding / "w").finish().bytes_reused > 0
    assert is_whole(hub, folding / "w")
    assert Download(hub, folding / "w").finish().bytes_downloaded == 0


@pytest.mark.parametrize("in_the_way", ["config.json/x", "sub"])
def test_what_is_in_the_way_is_named_before_the_first_byte(
    hub: HubServer, tmp_path: Path, in_the_way: str
) -> None:
    path = tmp_path / "w" / in_the_way
    path.parent.mkdir(parents=True)
    path.write_bytes(b"theirs")
    with pytest.raises(RefusedError, match="is in the way"):
        Download(hub, tmp_path / "w").finish()
    assert (hub.num_bytes(), path.read_bytes()) == (0, b"theirs")


def test_the_longest_name_is_taken_and_a_longer_one_refused(hub: HubServer, tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    hub.files = {f"sub/{'é' * 60}{'n' * (longest - 120)}": b"x" * 1000}
    Download(hub, tmp_path / "w").finish()
    assert is_whole(hub, tmp_path / "w")
    hub.files = {"n" * (longest + 1): b"x", "other": b"y"}
    hub.forget()
    with pytest.raises(RefusedError, match="too long for the filesystem"):
        Download(hub, tmp_path / "other").finish()
    assert (hub.num_bytes(), (tmp_path / "other").exists()) == (0, False)


def test_a_path_that_is_too_long_in_all_is_refused(hub: HubServer, tmp_path: Path) -> None:
    folders = "/".join(["d" * 200] * 21)
    hub.files = {f"{folders}/x": b"x"}
    with pytest.raises(RefusedError, match="too long for the filesystem"):
        Download(hub, tmp_path / "w").finish()
    assert hub.num_bytes() == 0


def test_what_a_killed_run_left_between_two_names_is_removed(
    hub: HubServer, tmp_path: Path
) -> None:
    Download(hub, tmp_path / "w").finish()
    left = [
        tmp_path / "w" / "k31ctl-manifest.json.123.tmp",
        tmp_path / "w" / ".k31ctl" / "journal.json.123.tmp",
        tmp_path / "w" / ".k31ctl" / "probe-0123abcd",
    ]
    for path in left:
        path.write_bytes(b"{")
    Download(hub, tmp_path / "w").finish()
    assert not [path for path in left if path.exists()]


@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_name_that_the_locale_cannot_write_is_refused(
    hub: HubServer, fetch: Fetch, options: tuple[str, ...]
) -> None:
    hub.files = hub.files | {"na\u00efve/d\u00e9.txt": b"x"}
    ascii_only = {"PYTHONUTF8": "0", "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    done = fetch(*options, **ascii_only)
    assert (done.returncode, done.stdout, hub.num_bytes()) == (4, "", 0)
    assert done.stderr.startswith(
        "error: the locale cannot write the name 'na\\xefve/d\\xe9.txt'\n"
    )
    assert "set LC_ALL=C.UTF-8" in done.stderr
    assert fetch("--exclude", "na*", **ascii_only).returncode == 0
    assert fetch().returncode == 0
    assert fetch("--exclude", "na*", **ascii_only).returncode == 0
