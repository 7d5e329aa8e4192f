"""Links and other things where the program's own files belong: refused, and nothing is lost."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from k31ctl.errors import RefusedError
from k31ctl.fetch.events import Planned
from tests.fetch.conftest import Fetch, is_whole
from tests.fetch.direct import Download
from tests.fetch.hub_server import HubServer

Blocked = Callable[[Path], None]
STATES = ("lock", "journal.json", "snapshot.json", "origins.json")


def elsewhere(folder: Path) -> Path:
    """A folder of somebody else, with a file whose name could be a part's."""
    other = folder.parent / "elsewhere"
    other.mkdir(exist_ok=True)
    (other / f"{'0' * 32}.part").write_bytes(b"precious")
    (other / "thesis.txt").write_bytes(b"precious")
    return other


def is_untouched(other: Path) -> bool:
    found = {path.name: path.read_bytes() for path in other.iterdir()}
    return found == {f"{'0' * 32}.part": b"precious", "thesis.txt": b"precious"}


@pytest.mark.parametrize("name", [".k31ctl", ".k31ctl/parts", ".k31ctl/marks"])
def test_a_state_folder_that_is_a_link_is_refused(
    hub: HubServer, tmp_path: Path, name: str
) -> None:
    link = tmp_path / "w" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere(tmp_path / "w"))
    with pytest.raises(RefusedError, match=r"^a link is in the way") as refused:
        Download(hub, tmp_path / "w").finish()
    assert refused.value.where == str(link)
    assert is_untouched(tmp_path / "elsewhere")
    assert not hub.asked


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_is_a_link_is_refused_and_its_target_kept(
    hub: HubServer, tmp_path: Path, name: str
) -> None:
    state = tmp_path / "w" / ".k31ctl"
    state.mkdir(parents=True)
    (state / name).symlink_to(elsewhere(tmp_path / "w") / "thesis.txt")
    with pytest.raises(RefusedError, match=r"^a link is in the way"):
        Download(hub, tmp_path / "w").finish()
    assert is_untouched(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    "name",
    ["k31ctl-manifest.json", "k31ctl-partial.json", *(f".k31ctl/{name}" for name in STATES)],
)
def test_a_folder_where_a_file_of_ours_belongs_is_refused_before_the_first_byte(
    hub: HubServer, tmp_path: Path, name: str
) -> None:
    (tmp_path / "w" / name).mkdir(parents=True)
    with pytest.raises(RefusedError, match=r"^a folder is in the way") as refused:
        Download(hub, tmp_path / "w").finish()
    assert refused.value.where == str(tmp_path / "w" / name)
    assert hub.num_bytes() == 0


@pytest.mark.parametrize("name", [".k31ctl", ".k31ctl/parts"])
def test_a_file_where_a_folder_of_ours_belongs_is_refused_before_the_first_byte(
    hub: HubServer, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "w" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"mine")
    with pytest.raises(RefusedError, match=r"^a file is in the way"):
        Download(hub, tmp_path / "w").finish()
    assert (hub.num_bytes(), path.read_bytes()) == (0, b"mine")


def test_a_pipe_for_a_journal_is_told_by_the_program_and_not_waited_for(
    fetch: Fetch, tmp_path: Path
) -> None:
    (tmp_path / "w" / ".k31ctl").mkdir(parents=True)
    os.mkfifo(tmp_path / "w" / ".k31ctl" / "journal.json")
    for options in ((), ("--dry-run",)):
        done = fetch(*options)
        assert (done.returncode, done.stdout) == (4, "")
        assert done.stderr.startswith("error: a special file is in the way")


def test_a_part_that_is_a_link_is_not_written_through(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {"big.safetensors": b"x" * 1000}
    Download(hub, tmp_path / "w").finish()
    hub.files = {"big.safetensors": b"y" * 1000}
    parts = tmp_path / "w" / ".k31ctl" / "parts"
    hub.fault = lambda answer: setattr(answer, "cut_after", 0)
    with pytest.raises(Exception, match="cannot be reached"):
        Download(hub, tmp_path / "w", retries=0).finish()
    (part,) = parts.glob("*.part")
    part.unlink()
    part.symlink_to(elsewhere(tmp_path / "w") / "thesis.txt")
    hub.fault = lambda _: None
    with pytest.raises(RefusedError, match="too many levels of symbolic links"):
        Download(hub, tmp_path / "w").finish()
    assert is_untouched(tmp_path / "elsewhere")


def test_what_is_not_a_part_among_the_parts_is_kept(hub: HubServer, tmp_path: Path) -> None:
    parts = tmp_path / "w" / ".k31ctl" / "parts"
    parts.mkdir(parents=True)
    stranger, left = parts / "thesis.txt", parts / f"{'0' * 32}.part"
    stranger.write_bytes(b"precious")
    left.write_bytes(b"of a file that the commit no longer has")
    Download(hub, tmp_path / "w").finish()
    assert (stranger.read_bytes(), left.exists()) == (b"precious", False)
    assert is_whole(hub, tmp_path / "w")


@pytest.mark.parametrize("target", ["elsewhere", "w/inside", "nowhere"])
@pytest.mark.parametrize("options", [(), ("--dry-run",)], ids=["run", "dry run"])
def test_a_link_for_a_folder_of_the_repository_is_refused(
    hub: HubServer, fetch: Fetch, tmp_path: Path, target: str, options: tuple[str, ...]
) -> None:
    other = elsewhere(tmp_path / "w")
    (tmp_path / "w" / "inside").mkdir(parents=True)
    (tmp_path / "w" / "sub").symlink_to(tmp_path / target)
    done = fetch(*options)
    assert (done.returncode, done.stdout, hub.num_bytes()) == (4, "", 0)
    assert done.stderr.splitlines()[:2] == [
        "error: a link is in the way of what is to be fetched",
        f"   at: {tmp_path / 'w' / 'sub'}  (rule fetch-in-the-way)",
    ]
    assert is_untouched(other)


def test_a_link_that_appears_during_a_run_is_not_followed(hub: HubServer, tmp_path: Path) -> None:
    hub.files = {"sub/a.bin": b"a" * 1000}
    other = elsewhere(tmp_path / "w")
    download = Download(hub, tmp_path / "w")
    download.until(Planned)
    (tmp_path / "w" / "sub").symlink_to(other)
    with pytest.raises(RefusedError, match="a link is in the way of a folder"):
        download.finish()
    assert is_untouched(other)


def test_a_target_that_is_itself_a_link_is_filled(hub: HubServer, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "w").symlink_to(tmp_path / "disk")
    Download(hub, tmp_path / "w").finish()
    assert is_whole(hub, tmp_path / "disk")


def test_a_file_that_is_a_link_is_replaced_and_its_target_kept(
    hub: HubServer, tmp_path: Path
) -> None:
    other = elsewhere(tmp_path / "w")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "config.json").symlink_to(other / "thesis.txt")
    Download(hub, tmp_path / "w").finish()
    assert is_whole(hub, tmp_path / "w")
    assert is_untouched(other)
