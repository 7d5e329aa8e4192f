"""Every kind of damage, mended from a hub on loopback: what was fetched for it, what never was."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import k31ctl as package
from k31ctl.catalog import Store, default_folders
from k31ctl.fetch.marks import BLOCK_BYTES, MarkedSha256
from k31ctl.fetch.verify import Wanted, verify_checkpoint
from tests.fetch.conftest import environment, fetched
from tests.fetch.hub_server import Answer, HubServer, running_hub
from tests.fetch.tiny_checkpoint import INDEX, SHARDS, flip, place_of, write_tiny
from tests.program import Done, program

SCHEMA = Path(package.__file__).parent / "schemas" / "verify.v1.schema.json"
BIG = "extra.bin"
Damage = Callable[[Path], None]
Repair = Callable[..., Done]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "tiny"
    write_tiny(folder)
    names = ("config.json", INDEX, *SHARDS)
    found = {name: (folder / name).read_bytes() for name in names}
    return found | {BIG: random.Random(1).randbytes(5 * BLOCK_BYTES + 12345)}


@pytest.fixture(scope="module")
def sound(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What fetch leaves."""
    folder = tmp_path_factory.mktemp("fetched") / "w"
    with running_hub(HubServer(files=dict(files), small=frozenset({"config.json"}))) as hub:
        fetched(hub, folder).check_returncode()
    return folder


@pytest.fixture
def hub(files: dict[str, bytes]) -> Iterator[HubServer]:
    with running_hub(HubServer(files=dict(files), small=frozenset({"config.json"}))) as running:
        yield running


@pytest.fixture
def folder(sound: Path, tmp_path: Path) -> Path:
    shutil.copytree(sound, tmp_path / "w")
    return tmp_path / "w"


@pytest.fixture
def repair(hub: HubServer, folder: Path) -> Repair:
    def run(*options: str) -> Done:
        return repaired(hub, folder, *options)

    return run


def repaired(hub: HubServer, folder: Path, *options: str) -> Done:
    return program(
        *("verify", str(folder), "--repair", "--endpoint", hub.url, "--jobs", "1", *options),
        environment=environment(),
    )


def told(done: Done) -> dict[str, Any]:
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)["result"]
    return found


def is_sound(hub: HubServer, folder: Path) -> bool:
    assert not (folder / ".k31ctl" / "repair").exists()
    return all((folder / path).read_bytes() == content for path, content in hub.files.items())


def drop_marks(folder: Path) -> None:
    shutil.rmtree(folder / ".k31ctl" / "marks", ignore_errors=True)


def cut(path: Path, num_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:-num_bytes])


def flip_twice(path: Path) -> None:
    flip(path, 5)
    flip(path, 5 * BLOCK_BYTES + 77)


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def put_nan(path: Path) -> None:
    content = bytearray(path.read_bytes())
    start, _ = place_of(path, "language_model.model.layers.0.self_attn.q_proj.weight")
    content[start : start + 2] = b"\x80\x7f"
    path.write_bytes(content)


def test_without_damage_no_hub_is_asked(hub: HubServer, repair: Repair) -> None:
    done = repair("--json")
    assert done.returncode == 0, done.stderr
    assert (told(done)["repair"], hub.asked) == (None, [])


def test_a_repair_ends_with_its_answer_where_the_model_is_not_known(
    hub: HubServer, folder: Path, repair: Repair
) -> None:
    flip(folder / SHARDS[0], -3)
    (folder / "config.json").write_text("{}")
    hub.files["config.json"] = b"{ }"  # not what was fetched, so it stays as it is
    done = repair("--json")
    assert done.returncode == 5, done.stderr
    found = told(done)
    assert [each["path"] for each in found["repair"]["files"]] == [SHARDS[0]]
    assert {each["file"] for each in found["corrupt"]} == {"config.json"}


def test_a_file_without_a_digest_is_told_and_not_fetched(
    hub: HubServer, folder: Path, repair: Repair
) -> None:
    record = json.loads((folder / "k31ctl-manifest.json").read_text())
    record["files"][0] |= {"sha256": None, "blob_id": None}
    (folder / "k31ctl-manifest.json").write_text(json.dumps(record))
    done = repair("--json")
    assert (done.returncode, told(done)["repair"], hub.asked) == (5, None, [])


def test_verify_names_the_block_from_which_on_a_file_is_wrong(folder: Path) -> None:
    flip(folder / BIG, 3 * BLOCK_BYTES + 7)
    found = verify_checkpoint(Store(default_folders(())), folder, Wanted(num_jobs=1))
    ((start, end),) = [(f.start, f.end) for f in found.findings]
    assert (start, end) == (3 * BLOCK_BYTES, 5 * BLOCK_BYTES + 12345)


@pytest.mark.parametrize(
    ("file", "damage", "most_bytes"),
    [
        (BIG, lambda p: flip(p, 3 * BLOCK_BYTES + 7), BLOCK_BYTES),
        (BIG, flip_twice, BLOCK_BYTES + 12345),
        (BIG, lambda p: cut(p, 12345), 12345),
        (BIG, lambda p: cut(p, BLOCK_BYTES), BLOCK_BYTES + 12345),
        (BIG, grow, 0),
        (BIG, Path.unlink, 5 * BLOCK_BYTES + 12345),
        (SHARDS[0], lambda p: flip(p, 40), 2**17),
        (SHARDS[0], lambda p: flip(p, 3), 2**17),
        (SHARDS[0], put_nan, 2**17),
        (SHARDS[1], lambda p: cut(p, 1), 2**17),
        (SHARDS[1], lambda p: p.write_bytes(b""), 2**20),
        (SHARDS[1], grow, 2**17),
        ("config.json", lambda p: p.write_text("{}"), 2**15),
        ("config.json", Path.unlink, 2**15),
        (INDEX, lambda p: flip(p, 1), 2**20),
    ],
    ids=[
        "flip", "two flips", "end missing", "block missing", "grown", "missing", "header",
        "header length", "nan", "byte missing", "empty", "shard grown", "config", "no config",
        "index",
    ],
)  # fmt: skip
def test_damage_is_mended_with_few_bytes(
    hub: HubServer, repair: Repair, folder: Path, file: str, damage: Damage, most_bytes: int
) -> None:
    damage(folder / file)
    done = repair("--json")
    assert (done.returncode, is_sound(hub, folder)) == (0, True), done.stderr
    found = told(done)
    Draft202012Validator(json.loads(SCHEMA.read_text())).validate(json.loads(done.stdout))
    (mended,) = found["repair"]["files"]
    assert mended["path"] == file
    assert found["repair"]["bytes_refetched"] == mended["bytes_refetched"] <= most_bytes
    assert found["repair"]["bytes_damaged"] == len(hub.files[file])
    assert found["proven"]


@pytest.mark.parametrize(
    ("damage", "most_bytes"),
    [
        (lambda p: flip(p, 3 * BLOCK_BYTES), 5 * BLOCK_BYTES + 12345),  # nothing says where
        (lambda p: cut(p, 2 * BLOCK_BYTES), 3 * BLOCK_BYTES + 12345),
        (lambda p: cut(p, 17), 17),
    ],
)
def test_without_marks_more_is_fetched_and_as_much_proven(
    hub: HubServer, repair: Repair, folder: Path, damage: Damage, most_bytes: int
) -> None:
    drop_marks(folder)
    damage(folder / BIG)
    done = repair("--json")
    assert (done.returncode, is_sound(hub, folder)) == (0, True), done.stderr
    assert told(done)["repair"]["bytes_refetched"] <= most_bytes
    flip(folder / BIG, 9)
    assert told(repair("--json"))["repair"]["bytes_refetched"] == BLOCK_BYTES  # now there are


def test_wrong_marks_lead_to_no_wrong_file(hub: HubServer, repair: Repair, folder: Path) -> None:
    for path in (folder / ".k31ctl" / "marks").iterdir():
        state = json.loads(path.read_text())
        state["marks"] = ["0" * 16 for _ in state["marks"]]
        path.write_text(json.dumps(state))
    flip(folder / BIG, 9)
    assert repair().returncode == 0
    assert is_sound(hub, folder)


def test_a_hub_that_is_gone_leaves_everything_as_it_is(
    folder: Path, files: dict[str, bytes]
) -> None:
    flip(folder / BIG, 9)
    before = (folder / BIG).read_bytes()
    with running_hub(HubServer(files=dict(files))) as gone:
        pass
    done = repaired(gone, folder, "--retries", "1")
    assert done.returncode == 6, done.stderr
    assert "cannot be reached" in done.stderr
    assert (folder / BIG).read_bytes() == before


def test_a_hub_whose_bytes_are_wrong_mends_nothing_and_the_others_are_mended(
    hub: HubServer, repair: Repair, folder: Path
) -> None:
    def wrong(answer: Answer) -> None:
        if answer.path == BIG:
            answer.content = bytes(len(answer.content))

    hub.fault = wrong
    flip(folder / BIG, 9)
    flip(folder / SHARDS[0], 40)
    before = (folder / BIG).read_bytes()
    done = repair("--json")
    assert done.returncode == 5
    assert "arrives with a wrong digest every time" in done.stderr
    assert [each["path"] for each in told(done)["repair"]["files"]] == [SHARDS[0]]
    assert (folder / BIG).read_bytes() == before
    hub.fault = lambda _: None
    assert repair().returncode == 0
    assert is_sound(hub, folder)


def test_a_hub_with_another_content_is_not_believed(
    hub: HubServer, repair: Repair, folder: Path
) -> None:
    hub.files[BIG] = hub.files[BIG][::-1]
    flip(folder / BIG, 9)
    done = repair()
    assert done.returncode == 5
    assert "publishes another content" in done.stderr


@pytest.mark.parametrize("text", ["{", '{"schema": "k31ctl/manifest/v1", "files": 3}', ""])
def test_a_damaged_record_is_refused_with_the_way_out(
    repair: Repair, folder: Path, text: str
) -> None:
    (folder / "k31ctl-manifest.json").write_text(text)
    done = repair()
    assert done.returncode == 3
    assert "   do: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_repair_that_is_killed_goes_on(hub: HubServer, folder: Path) -> None:
    (folder / BIG).unlink()
    hub.fault = lambda answer: setattr(answer, "rate", 12 * 2**20)
    process = subprocess.Popen(
        [sys.executable, "-m", "k31ctl", "verify", str(folder), "--repair",
         "--endpoint", hub.url, "--connections", "1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
    )  # fmt: skip
    while hub.num_bytes() < 3 * BLOCK_BYTES and process.poll() is None:
        pass
    process.kill()
    process.wait()
    hub.fault = lambda _: None
    done = repaired(hub, folder, "--json")
    assert (done.returncode, is_sound(hub, folder)) == (0, True), done.stderr
    assert told(done)["repair"]["bytes_refetched"] <= 4 * BLOCK_BYTES


def test_a_part_is_mended_as_a_part(hub: HubServer, tmp_path: Path) -> None:
    part = tmp_path / "part"
    options = ("--rank", "1", "--tp", "2", "--tensors", "*.layers.[01].*")
    fetched(hub, part, *options).check_returncode()
    contents = {path.name: path.read_bytes() for path in part.iterdir() if path.is_file()}
    for name in sorted(contents):
        if name in ("k31ctl-manifest.json", "k31ctl-partial.json"):
            continue
        path = part / name
        flip(path, len(contents[name]) // 2)
        done = repaired(hub, part, "--json")
        assert done.returncode == 0, (name, done.stderr)
        assert path.read_bytes() == contents[name]
        assert told(done)["part_of"] == (
            "hub:owner/name at 0123456789ab: --tensors *.layers.[01].* --rank 1 --tp 2"
        )


@given(st.lists(st.integers(0, 3 * BLOCK_BYTES), max_size=5))
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
def test_marks_do_not_depend_on_how_bytes_arrive(cuts: list[int]) -> None:
    content = memoryview(bytes(3 * BLOCK_BYTES))
    whole, pieces = MarkedSha256(), MarkedSha256()
    whole.update(content)
    bounds = sorted({0, *cuts, len(content)})
    for first, last in pairwise(bounds):
        pieces.update(content[first:last])
    assert (whole.marks, whole.hexdigest()) == (pieces.marks, pieces.hexdigest())
    assert len(whole.marks) == 3
