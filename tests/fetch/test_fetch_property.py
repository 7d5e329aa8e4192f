"""Whatever a repository holds, whatever goes wrong: in the end all is here, and nothing else.

Each example meets a process that is killed, then a run in which every answer may be wrong, then a
run without faults, which must end well, and one more, which must find nothing to do.
"""

import multiprocessing
import os
import random
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from k31ctl.errors import K31Error
from k31ctl.fetch.manifest import read_manifest
from k31ctl.fetch.safe_path import is_safe
from tests.fetch.conftest import is_whole
from tests.fetch.direct import Download, fetch_in_a_child
from tests.fetch.hub_server import Answer, Fault, HubServer, running_hub, status_once

FAULTY = 0.4
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.fetch.direct"])
OWN = {"journal.json", "lock", "snapshot.json"}


def cut(answer: Answer) -> None:
    answer.cut_after = len(answer.content) // 2


def flipped(answer: Answer) -> None:
    answer.content = (
        answer.content[:-1] + bytes([answer.content[-1] ^ 1]) if answer.content else b""
    )


def shorter(answer: Answer) -> None:
    answer.content = answer.content[: len(answer.content) // 2]


def whole(answer: Answer) -> None:
    answer.headers.pop("Content-Range", None)
    answer.headers["Content-Length"] = str(answer.size)
    answer.status, answer.content = 200, answer.file


def chunked(answer: Answer) -> None:
    answer.is_chunked = True


def until_it_closes(answer: Answer) -> None:
    answer.protocol = "HTTP/1.0"
    answer.headers.pop("Content-Length")


def other_range(answer: Answer) -> None:
    answer.headers["Content-Range"] = f"bytes {answer.start + 1}-{answer.end}/{answer.size}"


def other_size(answer: Answer) -> None:
    answer.headers["Content-Range"] = f"bytes {answer.start}-{answer.end - 1}/{answer.size + 1}"


def page(answer: Answer) -> None:
    answer.status, answer.content = 200, b"<html>"
    answer.headers = {"Content-Type": "text/html", "Content-Length": "6"}


FAULTS: list[Fault] = [
    cut, flipped, shorter, whole, chunked, until_it_closes, other_range, other_size, page,
    status_once(500, {}, times=10**9), status_once(429, {"Retry-After": "0"}, times=10**9),
    status_once(403, {}, times=10**9), status_once(416, {}, times=10**9),
]  # fmt: skip


def faulty(seed: int) -> Fault:
    """Every answer by its own dice: the same file may be cut first and then be right."""

    def fault(answer: Answer) -> None:
        dice = random.Random(f"{seed} {answer.path} {answer.number}")
        if dice.random() < FAULTY:
            dice.choice(FAULTS)(answer)

    return fault


NAMES = st.one_of(
    st.sampled_from(
        [".gitattributes", ".hidden", "config.json", "a b", "100%25", "x#y?z&=+", "é漢🙂"]
    ),
    st.text(
        st.characters(exclude_categories=("Cc", "Cf", "Cs"), exclude_characters="/\\"),
        min_size=1,
        max_size=12,
    ).filter(lambda name: name not in (".", "..") and not name.casefold().startswith(".k31ctl")),
)
# What is refused is tested elsewhere.
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join).filter(is_safe)
CONTENTS = st.one_of(
    st.sampled_from([b"", b"x", b"the same"]),
    st.builds(
        lambda seed, size: random.Random(seed).randbytes(size),
        st.integers(0, 5),
        st.sampled_from([1, 4096, 65537, 300_000]),
    ),
)


def could_be_a_tree(files: dict[str, bytes]) -> bool:
    """Whether no file stands where another needs a folder."""
    folders = {path.rpartition("/")[0] for path in files}
    return not any(
        folder == path or folder.startswith(f"{path}/") for path in files for folder in folders
    )


@settings(
    max_examples=int(os.environ.get("K31CTL_FETCH_EXAMPLES", "15")),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    files=st.dictionaries(PATHS, CONTENTS, min_size=1, max_size=6).filter(could_be_a_tree),
    num_small=st.integers(0, 3),
    seed=st.integers(0, 2**32),
    killed_after=st.integers(0, 12),
)
@example(
    files={"a": b"", "b/.c": b"the same", "b/d": b"the same"},
    num_small=2,
    seed=0,
    killed_after=4,
)
def test_in_the_end_all_is_here_and_right_and_nothing_else(
    files: dict[str, bytes], num_small: int, seed: int, killed_after: int
) -> None:
    small = frozenset(sorted(files)[:num_small])
    served = HubServer(files=files, small=small)
    with tempfile.TemporaryDirectory() as parent, running_hub(served) as hub:
        folder = Path(parent) / "w"
        hub.fault = faulty(seed)
        child = PROCESSES.Process(target=fetch_in_a_child, args=(hub.url, hub.repo, str(folder)))
        child.start()
        while child.is_alive() and len(hub.asked) <= killed_after:
            time.sleep(0.001)
        child.kill()
        child.join()
        with suppress(K31Error):
            Download(hub, folder, retries=1).finish()
        hub.fault = lambda _: None
        finished = Download(hub, folder).finish()
        assert finished.is_proven
        assert is_whole(hub, folder)
        here = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
        here -= {".k31ctl/origins.json"}  # there once a byte of content has come
        assert here == {*files, "k31ctl-manifest.json", *(f".k31ctl/{name}" for name in OWN)}
        record = read_manifest(folder)
        assert record is not None
        assert {f.path: f.sha256 for f in record.files} == {p: hub.sha256(p) for p in files}
        assert Download(hub, folder).finish().bytes_downloaded == 0
