"""Parts on the command line: against a hub on loopback, killed, cut short, and read back."""

import json
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from safetensors import deserialize

import k31ctl as package
from k31ctl.fetch.part_layout import CHUNK_BYTES
from k31ctl.fetch.partial_marker import MARKER_NAME
from tests.fetch.conftest import command, environment, fetched
from tests.fetch.hub_server import COMMIT, Answer, HubServer, running_hub, status_once
from tests.fetch.part_checkpoint import FILES, write_large
from tests.fetch.tiny_checkpoint import INDEX
from tests.program import Done, program

NUM_KILLS = int(os.environ.get("K31CTL_PART_KILLS", "6"))
SCHEMA = Path(package.__file__).parent / "schemas" / "fetch.v1.schema.json"
SMALL = frozenset({"config.json", "LICENSE", INDEX})
LAYERS = ("--layers", "1-2")
RATE = 16 * 2**20
Tensors = dict[str, bytes]
Part = Callable[..., Done]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return write_large(tmp_path_factory.mktemp("large"))


@pytest.fixture
def large(files: dict[str, bytes]) -> Iterator[HubServer]:
    with running_hub(HubServer(files=dict(files), small=SMALL)) as running:
        yield running


@pytest.fixture
def part(large: HubServer, tmp_path: Path) -> Part:
    def run(*options: str, to: str = "part", **more: str) -> Done:
        return fetched(large, tmp_path / to, *options, **more)

    return run


def tensors(contents: list[bytes]) -> Tensors:
    return {
        name: bytes(view["data"])
        for content in contents
        for name, view in deserialize(content)  # type: ignore[no-untyped-call]
    }


def of_layers(hub: HubServer, *layers: int) -> Tensors:
    every = tensors([hub.files[name] for name in FILES])
    return {n: d for n, d in every.items() if any(f"layers.{i}." in n for i in layers)}


def read(folder: Path) -> Tensors:
    return tensors([path.read_bytes() for path in folder.glob("*.safetensors")])


def result(done: Done) -> dict[str, object]:
    assert done.stdout, done.stderr
    found: dict[str, object] = json.loads(done.stdout)["result"]
    return found


def verified(folder: Path, *options: str) -> Done:
    return program("verify", str(folder), *options, environment=environment())


def test_layers_come_by_ranges_and_nothing_else(
    large: HubServer, part: Part, tmp_path: Path
) -> None:
    done = part(*LAYERS, "--json")
    assert done.returncode == 0, done.stderr
    found = result(done)
    assert read(tmp_path / "part") == of_layers(large, 1, 2)
    assert found["bytes_total"] == found["bytes_downloaded"] == 24 * 2**20 + 6
    assert (found["verified"], found["num_tensors"], found["files"]) == (True, 4, 2)
    headers = 2 * 2**20  # what is asked for to have a header, at most
    assert large.num_bytes() <= 24 * 2**20 + 6 + headers
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_both_documents_meet_the_schema(part: Part) -> None:
    schema = Draft202012Validator(json.loads(SCHEMA.read_text()))
    for options in (("--dry-run", "--json"), ("--json",)):
        schema.validate(json.loads(part(*LAYERS, *options).stdout))


def test_a_dry_run_tells_bytes_and_requests_and_writes_nothing(part: Part, tmp_path: Path) -> None:
    done = part(*LAYERS, "--dry-run", "--json")
    found = result(done)
    assert found["bytes_to_get"] == 24 * 2**20 + 6
    assert (found["num_ranges"], found["num_requests"]) == (2, 2)
    assert found["bytes_written"] > found["bytes_total"]  # type: ignore[operator]
    assert list(tmp_path.iterdir()) == []
    text = part(*LAYERS, "--dry-run").stdout
    assert "a part: --layers 1-2: 4 tensors" in text


def test_a_part_with_its_manifest_is_verified_offline(part: Part, tmp_path: Path) -> None:
    assert part(*LAYERS).returncode == 0
    manifest = json.loads((tmp_path / "part" / "k31ctl-manifest.json").read_text())
    assert (manifest["commit"], manifest["is_complete"]) == (COMMIT, False)
    assert {"LICENSE", "config.json", INDEX, "k31ctl-partial.json"} < {
        entry["path"] for entry in manifest["files"]
    }
    assert verified(tmp_path / "part", "--sizes").returncode == 0
    path = tmp_path / "part" / FILES[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 4
    path.write_bytes(content)
    done = verified(tmp_path / "part", "--json", "--model", "kimi-k3", "--again")
    digests = [f for f in result(done)["findings"] if f["level"] == "digests"]  # type: ignore[attr-defined]
    assert (done.returncode, [f["file"] for f in digests]) == (5, [FILES[0]])


def test_a_file_that_is_taken_whole_is_held_against_its_published_digest(
    large: HubServer, part: Part, tmp_path: Path
) -> None:
    done = part("--layers", "0-2")
    assert "1 file taken whole, held against the published SHA-256" in done.stdout
    assert (tmp_path / "part" / FILES[0]).read_bytes() == large.files[FILES[0]]


def test_a_whole_file_that_arrives_wrong_is_fetched_again(
    large: HubServer, part: Part, tmp_path: Path
) -> None:
    def flipped(answer: Answer) -> None:
        if answer.path == FILES[0] and answer.start == 0 and answer.number <= 2:
            wrong = bytearray(answer.content)
            wrong[-5] ^= 1
            answer.content = bytes(wrong)

    large.fault = flipped
    done = part("--layers", "0-2", "--json")
    assert done.returncode == 0, done.stderr
    assert result(done)["num_refetched"] == 1
    assert read(tmp_path / "part") == of_layers(large, 0, 1, 2)


def test_a_whole_file_that_is_always_wrong_is_not_kept(
    large: HubServer, part: Part, tmp_path: Path
) -> None:
    def flipped(answer: Answer) -> None:
        if answer.path == FILES[0] and len(answer.content) > 4 * 2**20:
            answer.content = answer.content[:-1] + bytes([answer.content[-1] ^ 1])

    large.fault = flipped
    done = part("--layers", "0-2")
    assert done.returncode == 5
    assert "arrives with a wrong digest every time" in done.stderr
    assert not (tmp_path / "part").exists()


def test_a_kill_at_any_moment_loses_at_most_a_chunk_for_each_connection(
    large: HubServer, part: Part, tmp_path: Path
) -> None:
    some, total = random.Random(3), 24 * 2**20 + 6
    large.fault = lambda answer: setattr(answer, "rate", RATE)
    for _ in range(NUM_KILLS):
        before = large.num_bytes()
        process = subprocess.Popen(
            command(large, tmp_path / "part", *LAYERS, "--connections", "2"),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(),
        )  # fmt: skip
        deadline = time.monotonic() + 30
        wanted = some.randrange(2**20, 2 * total // NUM_KILLS + 2**20)
        while large.num_bytes() < before + wanted and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.kill()
        process.wait()
        assert not (tmp_path / "part").exists() or read(tmp_path / "part") == of_layers(large, 1, 2)
    large.fault = lambda _: None
    ranges_before = sum(r.num_bytes for r in large.asked if "safetensors" in r.path)
    done = part(*LAYERS, "--json")
    assert done.returncode == 0, done.stderr
    assert read(tmp_path / "part") == of_layers(large, 1, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["part"]
    found = result(done)
    assert found["bytes_reused"] + found["bytes_downloaded"] == total  # type: ignore[operator]
    # Headers are read anew each time: a mebibyte a file. Sockets hold a little that none has read.
    headers = 2 * 2**20 * (NUM_KILLS + 1)
    lost = ranges_before + found["bytes_downloaded"] - total  # type: ignore[operator]
    assert lost <= NUM_KILLS * 2 * (CHUNK_BYTES + 4 * 2**20) + headers


def test_another_selection_does_not_mix(large: HubServer, part: Part, tmp_path: Path) -> None:
    large.fault = lambda answer: setattr(answer, "cut_after", 12 * 2**20)
    assert part(*LAYERS, "--retries", "0").returncode == 6
    assert list(tmp_path.iterdir())
    large.fault = lambda _: None
    found = result(part("--layers", "3", "--json"))
    assert (found["bytes_reused"], found["bytes_downloaded"]) == (0, found["bytes_total"])
    assert read(tmp_path / "part") == of_layers(large, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_bytes_that_a_disk_has_lost_are_fetched_again(
    large: HubServer, part: Part, tmp_path: Path
) -> None:
    large.fault = lambda answer: setattr(answer, "cut_after", 10 * 2**20)
    assert part(*LAYERS, "--retries", "0", "--connections", "1").returncode == 6
    (unfinished,) = (path for path in tmp_path.glob(".part*/*/*.safetensors"))
    with unfinished.open("r+b") as stream:
        stream.seek(5 * 2**20)
        stream.write(bytes(4096))
    large.fault = lambda _: None
    done = part(*LAYERS, "--json")
    assert result(done)["bytes_reused"] == 0
    assert read(tmp_path / "part") == of_layers(large, 1, 2)


def test_what_is_whole_already_is_held_against_its_record_only(
    large: HubServer, part: Part, tmp_path: Path
) -> None:
    assert part(*LAYERS).returncode == 0
    found = result(part(*LAYERS, "--json"))
    assert (found["verified"], found["bytes_downloaded"]) == (True, 0)
    path = tmp_path / "part" / FILES[1]
    path.write_bytes(path.read_bytes()[:-1])
    done = part(*LAYERS)
    assert done.returncode == 5
    assert "verify" in done.stderr


def test_a_part_that_the_whole_is_fetched_into_is_no_part_any_more(
    part: Part, tmp_path: Path
) -> None:
    assert part(*LAYERS).returncode == 0
    assert (tmp_path / "part" / MARKER_NAME).exists()
    done = part()
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "part" / MARKER_NAME).exists()


def test_a_folder_of_another_part_is_left_alone(part: Part) -> None:
    assert part(*LAYERS).returncode == 0
    done = part("--layers", "0")
    assert done.returncode == 3
    assert "holds another part" in done.stderr


def test_two_at_once_the_second_waits_and_finds_it_done(
    large: HubServer, part: Part, tmp_path: Path
) -> None:
    def started(*options: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command(large, tmp_path / "part", *LAYERS, *options),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
        )  # fmt: skip

    first = started("--limit-rate", "2MB/s")
    deadline = time.monotonic() + 30
    while large.num_bytes() < 4 * 2**20 and time.monotonic() < deadline:
        time.sleep(0.01)
    refused, second = started("--no-wait"), started("--json")
    (answer, told), _ = second.communicate(timeout=60), refused.communicate(timeout=60)
    first.communicate(timeout=60)
    assert (first.returncode, second.returncode, refused.returncode) == (0, 0, 4)
    assert "waiting: process" in told
    assert json.loads(answer)["result"]["bytes_downloaded"] == 0


@pytest.mark.parametrize(
    "fault",
    [
        status_once(503, {}, times=2), status_once(429, {"Retry-After": "0"}),
        lambda a: setattr(a, "cut_after", 2 * 2**20 if a.number % 2 else None),
    ],
    ids=["503", "429", "cut"],
)  # fmt: skip
def test_a_passing_fault_is_overcome(
    large: HubServer, part: Part, tmp_path: Path, fault: Callable[[Answer], None]
) -> None:
    large.fault = fault
    done = part(*LAYERS)
    assert done.returncode == 0, done.stderr
    assert read(tmp_path / "part") == of_layers(large, 1, 2)


def test_a_server_without_ranges_is_refused_for_a_part(large: HubServer, part: Part) -> None:
    def whole(answer: Answer) -> None:
        answer.content, answer.status = large.files[answer.path], 200
        answer.headers["Content-Length"] = str(len(answer.content))
        answer.headers.pop("Content-Range", None)

    large.fault = whole
    done = part(*LAYERS)
    assert done.returncode == 6
    assert "sends whole files where a range is asked for" in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--layers", "9"), 2, "the checkpoint has no layer 9"),
        (("--layers", "0-9"), 2, "the checkpoint has no layer 4 and 5 more"),
        (("--experts", "0-99"), 2, "the checkpoint has no expert"),
        (("--tensors", "nothing*"), 2, "no tensor of the checkpoint is chosen"),
        (("--layers", "0", "--port", "8080"), 2, "this option is for --serve alone"),
        (("--layers", "x"), 2, "not a range of whole numbers"),
        (("--tp", "2"), 2, "a layout without a rank"),
        (("--rank", "4", "--tp", "2", "--pp", "2"), 2, "there is no rank 4 among 4"),
        (("--layers", "0", "--include", "*"), 2, "cannot both be chosen"),
        (("--layers", "0", "--gate", "files=="), 2, "is not a gate"),
        (("--layers", "0", "--gate", "nothing==1"), 2, "is not a number in the result"),
    ],
)
def test_a_mistake_is_one_clear_message(
    large: HubServer, part: Part, tmp_path: Path, options: tuple[str, ...], code: int, told: str
) -> None:
    done = part(*options)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "part").exists()


def test_a_gate_that_does_not_hold_ends_with_4(part: Part, tmp_path: Path) -> None:
    assert part(*LAYERS, "--dry-run", "--gate", "bytes_to_get<=1e6").returncode == 4
    done = part(*LAYERS, "--gate", "verified==true", "--gate", "files>2")
    assert done.returncode == 4
    assert "files>2 does not hold: it is 2" in done.stderr
    assert (tmp_path / "part").exists()


def test_events_are_lines_of_json(part: Part) -> None:
    done = part(*LAYERS, "--events")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    names = [event["event"] for event in events]
    assert (names[0], names[-1]) == ("Planned", "Finished")
    assert names.count("FileVerified") == 2


def test_an_interrupt_says_how_to_go_on(large: HubServer, part: Part, tmp_path: Path) -> None:
    process = subprocess.Popen(
        command(large, tmp_path / "part", *LAYERS, "--limit-rate", "2MB/s"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    while large.num_bytes() < 3 * 2**20 and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "k31ctl fetch owner/name --to" in told
    assert "--layers 1-2" in told
    assert part(*LAYERS).returncode == 0
    assert read(tmp_path / "part") == of_layers(large, 1, 2)


def test_a_disk_that_fills_up_is_told_and_the_rest_comes_later(
    large: HubServer, part: Part, tmp_path: Path
) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9 * 2**20, 9 * 2**20))

    done = subprocess.run(
        command(large, tmp_path / "part", *LAYERS),
        capture_output=True, text=True, check=False, timeout=60, env=environment(),
        preexec_fn=limited,
    )  # fmt: skip
    assert done.returncode == 4
    assert "the disk does not take the data: file too large" in done.stderr
    found = result(part(*LAYERS, "--json"))
    assert 0 < found["bytes_downloaded"] < found["bytes_total"]  # type: ignore[operator]
    assert read(tmp_path / "part") == of_layers(large, 1, 2)


def test_a_token_is_needed_where_the_repository_is_closed(large: HubServer, part: Part) -> None:
    large.token = "secret"
    assert part(*LAYERS).returncode == 3
    assert part(*LAYERS, HF_TOKEN="secret").returncode == 0
