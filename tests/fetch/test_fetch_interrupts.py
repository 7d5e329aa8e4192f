"""An end from outside in every phase, and streams that nobody reads any more."""

import json
import random
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.journal import Journal
from tests.fetch.conftest import Fetch, command, environment, is_whole
from tests.fetch.hub_server import HubServer, status_once

FIRST = "model-00001-of-00002.safetensors"


@contextmanager
def running(hub: HubServer, folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command(hub, folder, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            assert stream is not None
            stream.close()


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def told(process: subprocess.Popen[str], text: str) -> None:
    """Wait until the program says this."""
    assert process.stderr is not None
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(f"it ended without saying {text!r}")


def listing_hangs(hub: HubServer, folder: Path) -> tuple[list[str], str | None]:
    hub.api_fault = lambda _: time.sleep(30)
    return [], None


def waits_for_the_lock(hub: HubServer, folder: Path) -> tuple[list[str], str | None]:
    (folder / ".k31ctl").mkdir(parents=True)
    owner = {"nonce": "0", "pid": 7, "host": "node-a", "boot_id": "theirs", "started": "1"}
    (folder / ".k31ctl" / "lock").write_text(json.dumps(owner))
    return [], "waiting: process 7 on node-a has the folder"


def waits_to_ask_the_hub_again(hub: HubServer, folder: Path) -> tuple[list[str], str | None]:
    hub.api_fault = lambda _: (429, {"Retry-After": "200"}, b"")
    return [], "again in 3 min"


def waits_to_ask_for_bytes_again(hub: HubServer, folder: Path) -> tuple[list[str], str | None]:
    hub.fault = status_once(503, {"Retry-After": "200"}, times=99)
    return [], "again in 3 min"


def reads_a_part_again(hub: HubServer, folder: Path) -> tuple[list[str], str | None]:
    """A part of 9 GiB, sparse, takes seconds to be hashed again."""
    size = 9 * 2**30
    entry = {"rfilename": FIRST, "size": size, "lfs": {"sha256": "0" * 64, "size": size}}
    info = json.dumps(hub.info() | {"siblings": [entry]}).encode()
    hub.api_fault = lambda _: (200, {"Content-Type": "application/json"}, info)
    file = HubFile(path=FIRST, size_bytes=size, sha256="0" * 64, blob_id=None)
    journal = Journal(folder)
    journal.begin(hub.repo)
    with journal.part_path(file).open("wb") as part:
        part.truncate(size - 1)
    journal.state_path(file).write_bytes(journal.part_state(written=size - 1, synced=0))
    return [], None


def waits_for_its_hours(hub: HubServer, folder: Path) -> tuple[list[str], str | None]:
    begin = datetime.now() + timedelta(hours=5)
    end = begin + timedelta(hours=1)
    return ["--between", f"{begin:%H:%M}-{end:%H:%M}"], "paused for"


@pytest.mark.parametrize(
    "phase",
    [
        listing_hangs, waits_for_the_lock, waits_to_ask_the_hub_again,
        waits_to_ask_for_bytes_again, reads_a_part_again, waits_for_its_hours,
    ],
)  # fmt: skip
def test_an_interrupt_ends_every_phase_at_once(
    hub: HubServer,
    tmp_path: Path,
    phase: Callable[[HubServer, Path], tuple[list[str], str | None]],
) -> None:
    options, text = phase(hub, tmp_path / "w")
    with running(hub, tmp_path / "w", *options) as process:
        if text is None:
            wait_until(lambda: hub.asked)
            time.sleep(0.3)
        else:
            told(process, text)
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=10)  # a busy machine's two seconds
    assert process.returncode == 130
    assert "Traceback" not in rest
    assert f"k31ctl fetch {hub.repo} --to" in rest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_other_signals_end_it_as_well_and_lose_nothing(
    hub: HubServer, fetch: Fetch, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    hub.fault = lambda answer: setattr(answer, "rate", 1e6)
    with running(hub, tmp_path / "w") as process:
        wait_until(lambda: hub.num_bytes() > 2**19)
        process.send_signal(number)
        assert process.wait(timeout=30) == code
    hub.fault = lambda _: None
    result = json.loads(fetch("--json", "--no-wait").stdout)["result"]
    assert result["bytes_reused"] > 0
    assert is_whole(hub, tmp_path / "w")


SCHEMA = Draft202012Validator(
    json.loads(
        (Path(package.__file__).parent / "schemas" / "fetch-event.v1.schema.json").read_text()
    )
)


def test_every_event_meets_the_schema(hub: HubServer, fetch: Fetch) -> None:
    hub.fault = status_once(503, {}, times=1)
    done = fetch("--events", "--limit-rate", "5MB/s")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    for event in events:
        SCHEMA.validate(event)
    kinds = {event["event"] for event in events}
    assert {"Planned", "FileStarted", "Progress", "Retried", "FileVerified", "Finished"} <= kinds
    verified = {event["path"] for event in events if event["event"] == "FileVerified"}
    assert verified == set(hub.files)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--revision", "nowhere"), 3),
        (("--include", "nothing"), 3),
        (("--gate", "no_such_name==1"), 2),
        (("--layers", "0"), 3),
    ],
)
def test_a_run_that_fails_before_its_plan_ends_with_an_event_that_says_so(
    fetch: Fetch, options: tuple[str, ...], code: int
) -> None:
    done = fetch("--events", *options)
    event = json.loads(done.stdout.splitlines()[-1])
    SCHEMA.validate(event)
    assert (event["event"], event["exit_code"], done.returncode) == ("Failed", code, code)
    assert done.stderr.startswith(f"error: {event['what']}\n")


def test_a_run_that_fails_after_its_plan_sums_up_as_before(hub: HubServer, fetch: Fetch) -> None:
    hub.fault = status_once(404, {}, times=99)
    done = fetch("--events", "--retries", "0")
    assert (done.returncode, '"Failed"' in done.stdout) == (3, False), done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "Finished"


def test_a_kill_leaves_whole_lines_of_events(hub: HubServer, tmp_path: Path) -> None:
    some = random.Random(5)
    hub.fault = lambda answer: setattr(answer, "rate", 4e6)
    for _ in range(3):
        with running(hub, tmp_path / "w", "--events") as process:
            assert process.stdout is not None
            first = process.stdout.readline()
            time.sleep(some.random() * 0.5)
            process.kill()
            text = first + process.communicate()[0]
        assert text.endswith("\n")
        for line in text.splitlines():
            SCHEMA.validate(json.loads(line))


def test_a_reader_that_leaves_ends_the_run_and_loses_nothing(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.fault = lambda answer: setattr(answer, "rate", 1e6)
    with running(hub, tmp_path / "w", "--events") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "Planned"
        process.stdout.close()
        assert process.wait(timeout=30) == 141
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    hub.fault = lambda _: None
    assert fetch("--no-wait").returncode == 0
    assert is_whole(hub, tmp_path / "w")


def test_a_run_that_nobody_listens_to_fetches_all_the_same(hub: HubServer, tmp_path: Path) -> None:
    """As from a daemon that closes all streams: no file of ours takes the number of one."""
    quiet = f"exec {shlex.join(command(hub, tmp_path / 'w'))} > /dev/null <&- 2>&-"
    done = subprocess.run(["sh", "-c", quiet], env=environment(), check=False, timeout=60)
    assert done.returncode == 0
    assert is_whole(hub, tmp_path / "w")
