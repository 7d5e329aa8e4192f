"""Ends in the middle: SIGKILL, SIGINT, a full disk, two at once."""

import json
import os
import random
import resource
import signal
import subprocess
import time
from pathlib import Path

from tests.fetch.conftest import Fetch, command, environment, is_whole
from tests.fetch.direct import Download
from tests.fetch.hub_server import Answer, HubServer

NUM_KILLS = int(os.environ.get("K31CTL_FETCH_KILLS", "12"))
BIG = "big.safetensors"
RATE = 8 * 2**20


def slow(answer: Answer) -> None:
    answer.rate = RATE


def started(hub: HubServer, folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(hub, folder, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


def wait_for_bytes(hub: HubServer, num_bytes: int) -> None:
    deadline = time.monotonic() + 30
    while hub.num_bytes() < num_bytes and time.monotonic() < deadline:
        time.sleep(0.005)


def kill_somewhere(hub: HubServer, folder: Path, some: random.Random) -> bool:
    """Start the program and kill it: after some bytes, or before there are any."""
    process = started(hub, folder, "--connections", "2")
    if some.random() < 0.25:
        time.sleep(some.random())
    else:
        until = hub.num_bytes() + some.randrange(1, 5 * 2**20)
        while hub.num_bytes() < until and process.poll() is None:
            time.sleep(0.005)
        time.sleep(some.random() * 0.1)
    process.kill()
    process.communicate()
    return process.returncode != 0


def test_a_kill_at_any_moment_loses_almost_nothing_and_nothing_wrong_is_kept(
    hub: HubServer, tmp_path: Path
) -> None:
    some = random.Random(11)
    hub.files[BIG] = some.randbytes(24 * 2**20)
    total = sum(map(len, hub.files.values()))
    num_kills = 0
    while num_kills < NUM_KILLS:
        hub.forget()
        hub.fault = slow
        folder, begun = tmp_path / f"w{num_kills}", num_kills
        while num_kills < NUM_KILLS and kill_somewhere(hub, folder, some):
            num_kills += 1
        hub.fault = lambda _: None
        Download(hub, folder).finish()
        assert is_whole(hub, folder)
        # At each kill, and at the last run's sharing of ranges: what is under way on 2 connections.
        assert hub.num_bytes() - total <= (num_kills - begun + 1) * 2 * 8 * 2**20


def test_what_was_here_is_not_asked_for_again(hub: HubServer, fetch: Fetch, tmp_path: Path) -> None:
    hub.files[BIG] = random.Random(3).randbytes(24 * 2**20)
    hub.fault = slow
    process = started(hub, tmp_path / "w", "--connections", "1")
    wait_for_bytes(hub, 16 * 2**20)
    process.kill()
    process.communicate()
    hub.fault = lambda _: None
    hub.forget()
    result = json.loads(fetch("--json", "--connections", "1").stdout)["result"]
    assert result["bytes_reused"] + result["bytes_downloaded"] == result["bytes_total"]
    assert result["bytes_downloaded"] <= 19 * 2**20


def test_an_interrupt_ends_within_two_seconds_and_says_how_to_go_on(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.fault = slow
    process = started(hub, tmp_path / "w", "--limit-rate", "500kB/s")
    wait_for_bytes(hub, 100_000)
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=10)
    assert time.monotonic() - start < 2
    assert process.returncode == 130
    assert "k31ctl fetch owner/name --to" in told
    hub.fault = lambda _: None
    assert fetch().returncode == 0
    assert is_whole(hub, tmp_path / "w")


def test_two_at_once_the_second_waits_and_fetches_nothing(hub: HubServer, tmp_path: Path) -> None:
    hub.files[BIG] = random.Random(3).randbytes(12 * 2**20)
    first = started(hub, tmp_path / "w", "--limit-rate", "4MB/s")
    wait_for_bytes(hub, 2**18)
    refused = started(hub, tmp_path / "w", "--no-wait")
    assert "is fetching into this folder" in refused.communicate(timeout=60)[1]
    second = started(hub, tmp_path / "w", "--json")
    answer, told = second.communicate(timeout=60)
    first.communicate(timeout=60)
    assert (first.returncode, second.returncode, refused.returncode) == (0, 0, 4)
    assert "waiting: process" in told
    assert json.loads(answer)["result"]["bytes_downloaded"] == 0
    assert is_whole(hub, tmp_path / "w")


def test_a_disk_that_fills_up_is_told_and_the_rest_comes_later(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20))

    done = subprocess.run(
        command(hub, tmp_path / "w"),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
        preexec_fn=limited,
    )
    assert done.returncode == 4
    assert "the disk does not take the data: file too large" in done.stderr
    assert fetch().returncode == 0
    assert is_whole(hub, tmp_path / "w")


def test_too_little_room_is_refused_before_the_first_byte(hub: HubServer, fetch: Fetch) -> None:
    info = hub.info()
    for sibling in info["siblings"]:
        if "lfs" in sibling:
            sibling["size"] = sibling["lfs"]["size"] = 10**18
    hub.api_fault = lambda _: (200, {"Content-Type": "application/json"}, json.dumps(info).encode())
    done = fetch()
    assert done.returncode == 4
    assert "are needed on" in done.stderr
    assert hub.num_bytes() == 0


def test_a_target_that_cannot_be_a_folder_is_refused(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    (tmp_path / "w").write_text("a file")
    done = fetch()
    assert done.returncode == 4
    assert "cannot be written" in done.stderr
    assert hub.num_bytes() == 0


def test_a_damaged_file_in_its_place_is_found_and_replaced(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    assert fetch().returncode == 0
    path = tmp_path / "w" / "model-00002-of-00002.safetensors"
    content = bytearray(path.read_bytes())
    content[77] ^= 1
    path.write_bytes(content)
    done = fetch()
    assert done.returncode == 0
    assert "wrong bytes" in done.stderr
    assert is_whole(hub, tmp_path / "w")


def test_a_dry_run_asks_little_and_writes_nothing(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    result = json.loads(fetch("--dry-run", "--json").stdout)["result"]
    assert result["bytes_total"] == sum(map(len, hub.files.values()))
    assert result["free_bytes"] > 0
    assert result["eta_s"] > 0
    assert len(hub.asked) <= 4
    assert not (tmp_path / "w").exists()
