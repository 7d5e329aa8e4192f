"""Object storage as source and target, against a server that speaks S3 and against plain files.

Google's storage is not tried: no server for it comes with the test dependencies. It takes the same
way through fsspec.
"""

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from k31ctl.fetch.manifest import manifest_from, read_manifest
from tests.fetch.conftest import environment, fetched, is_whole
from tests.fetch.hub_server import Answer, HubServer, running_hub
from tests.fetch.s3_server import BUCKET, S3Server, running_s3
from tests.program import Done, program

LARGEST = "model-00001-of-00002.safetensors"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    pytest.importorskip("moto.server", reason="moto[s3,server] is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    with running_s3() as server:
        yield server


@pytest.fixture
def hub() -> Iterator[HubServer]:
    """A hub whose largest file is sent to a store in parts."""
    some = random.Random(7)
    files = {
        "config.json": b"{}",
        "LICENSE": b"you may",
        LARGEST: some.randbytes(33 * 2**20 + 17),
        "sub/empty.bin": b"",
    }
    with running_hub(HubServer(files=files)) as running:
        yield running


def to_store(hub: HubServer, url: str, *options: str, **more: str) -> Done:
    return program(
        *("fetch", hub.repo, "--to", url, "--endpoint", hub.url, *options),
        environment=environment(**more),
        loaded=("s3fs",) if url.startswith("s3:") else (),
    )


def test_a_repository_goes_there_and_comes_back(
    hub: HubServer, s3: S3Server, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/round"
    done = to_store(hub, url, "--accepted-by", "Jo", **s3.environment)
    assert (done.returncode, done.stderr.count("error")) == (0, 0), done.stderr
    assert all(s3.content(f"round/{path}") == content for path, content in hub.files.items())
    hub.forget()
    assert f"record  {url}/k31ctl-manifest.json" in done.stdout
    back = fetched(hub, tmp_path / "b", "--offline", "--from-peer", url, **s3.environment)
    assert (back.returncode, is_whole(hub, tmp_path / "b"), len(hub.asked)) == (0, True, 0)
    assert f"proven  against the record of {url} alone, no hub (--offline)" in back.stdout
    found = read_manifest(tmp_path / "b")
    assert found is not None
    assert {f.path: f.sources for f in found.files}[LARGEST] == (url,)


def test_the_record_is_last_and_holds_what_a_folder_s_does(hub: HubServer, s3: S3Server) -> None:
    def cut(answer: Answer) -> None:
        if answer.path == LARGEST:
            answer.cut_after = 2**20

    url, hub.fault = f"s3://{BUCKET}/last", cut
    assert to_store(hub, url, "--retries", "0", **s3.environment).returncode == 6
    keys = s3.keys("last/")
    assert f"last/{LARGEST}" not in keys
    assert "last/k31ctl-manifest.json" not in keys
    assert not s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads")
    hub.fault = lambda _: None
    again = to_store(hub, url, "--accepted-by", "Jo", "--json", **s3.environment)
    result = json.loads(again.stdout)["result"]
    assert (again.returncode, result["bytes_reused"], result["bytes_downloaded"]) == (
        0,
        9,
        len(hub.files[LARGEST]),
    )
    found = manifest_from(s3.content("last/k31ctl-manifest.json"), where="")
    assert (found.accepted_by, found.licence_texts[0].text) == ("Jo", "you may")
    assert {f.path: f.sha256 for f in found.files} == {p: hub.sha256(p) for p in hub.files}


def test_a_second_run_sends_nothing_and_a_changed_object_is_sent_again(
    hub: HubServer, s3: S3Server
) -> None:
    url = f"s3://{BUCKET}/second"
    assert to_store(hub, url, **s3.environment).returncode == 0
    hub.forget()
    again = json.loads(to_store(hub, url, "--json", **s3.environment).stdout)["result"]
    assert (again["bytes_downloaded"], hub.num_bytes(), again["verified"]) == (0, 0, True)
    s3.client().put_object(Bucket=BUCKET, Key="second/LICENSE", Body=b"you MAY")
    assert to_store(hub, url, **s3.environment).returncode == 0
    assert s3.content("second/LICENSE") == b"you may"


@pytest.mark.parametrize("kind", ["s3", "file"])
def test_ctrl_c_leaves_whole_files_and_nothing_else(
    hub: HubServer, s3: S3Server, tmp_path: Path, kind: str
) -> None:
    def stall(answer: Answer) -> None:
        if answer.path == LARGEST:
            answer.stall_after, answer.stall_s = 20 * 2**20, 60.0

    hub.fault = stall
    url = f"s3://{BUCKET}/stopped" if kind == "s3" else f"file://{tmp_path / 'stopped'}"
    process = subprocess.Popen(
        [
            *[sys.executable, "-m", "k31ctl", "fetch", hub.repo],
            *["--to", url, "--endpoint", hub.url, "--stall", "50"],
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**s3.environment),
    )
    while hub.num_bytes() < 20 * 2**20:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert f"k31ctl fetch {hub.repo} --to {url}" in err
    names = [name.partition("stopped/")[2] for name in s3.keys("stopped/")]
    if kind == "file":
        files = (path for path in (tmp_path / "stopped").rglob("*") if path.is_file())
        names = [str(path.relative_to(tmp_path / "stopped")) for path in files]
    assert sorted(names) == [".k31ctl/journal.json", "LICENSE", "config.json", "sub/empty.bin"]
    assert not s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads")


@pytest.mark.parametrize("path", ["LICENSE", LARGEST])
def test_wrong_bytes_do_not_appear_there(hub: HubServer, s3: S3Server, path: str) -> None:
    content = bytearray(hub.files[path])
    content[3] ^= 1

    def flip(answer: Answer) -> None:
        if answer.path == path:
            answer.content = bytes(content[answer.start : answer.end])

    hub.fault = flip
    prefix = f"wrong-{path}"
    done = to_store(hub, f"s3://{BUCKET}/{prefix}", **s3.environment)
    assert done.returncode == 5
    assert f"{prefix}/{path}" not in s3.keys(f"{prefix}/")
    assert not s3.client().list_multipart_uploads(Bucket=BUCKET).get("Uploads")


def test_a_damaged_object_comes_from_the_hub_instead(
    hub: HubServer, s3: S3Server, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/damaged"
    assert to_store(hub, url, **s3.environment).returncode == 0
    content = bytearray(hub.files[LARGEST])
    content[5] ^= 1
    s3.client().put_object(Bucket=BUCKET, Key=f"damaged/{LARGEST}", Body=bytes(content))
    done = fetched(hub, tmp_path / "b", "--from-peer", url, **s3.environment)
    assert (done.returncode, is_whole(hub, tmp_path / "b")) == (0, True)
    assert f"wrong bytes: {LARGEST}" in done.stderr


def test_a_dry_run_writes_nothing(hub: HubServer, s3: S3Server) -> None:
    done = to_store(hub, f"s3://{BUCKET}/dry", "--dry-run", "--json", **s3.environment)
    result = json.loads(done.stdout)["result"]
    assert (done.returncode, result["free_bytes"], s3.keys("dry/")) == (0, None, {})
    assert result["bytes_to_get"] == sum(len(content) for content in hub.files.values())


def test_a_node_s_folder_goes_to_the_store_without_the_hub_s_bytes(
    hub: HubServer, s3: S3Server, tmp_path: Path
) -> None:
    assert fetched(hub, tmp_path / "node0").returncode == 0
    hub.forget()
    url = f"s3://{BUCKET}/from-node"
    done = to_store(hub, url, "--from-peer", str(tmp_path / "node0"), **s3.environment)
    assert (done.returncode, hub.num_bytes()) == (0, 0)
    assert s3.content(f"from-node/{LARGEST}") == hub.files[LARGEST]


def test_another_repository_in_the_prefix_is_refused(hub: HubServer, s3: S3Server) -> None:
    url = f"s3://{BUCKET}/other"
    assert to_store(hub, url, **s3.environment).returncode == 0
    hub.repo = "owner/another"
    done = to_store(hub, url, **s3.environment)
    assert done.returncode == 4
    assert done.stderr.startswith("error: the prefix holds owner/name, not owner/another\n")


def test_a_bucket_that_is_not_there_is_said(hub: HubServer, s3: S3Server) -> None:
    done = to_store(hub, "s3://nowhere-at-all/x", **s3.environment)
    assert done.returncode == 3
    assert done.stderr.startswith("error: there is no such bucket or folder\n")


def test_a_server_that_is_not_there_is_said(hub: HubServer, s3: S3Server) -> None:
    elsewhere = s3.environment | {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    done = to_store(hub, f"s3://{BUCKET}/x", **elsewhere)
    assert done.returncode == 6
    assert "Traceback" not in done.stderr


def test_a_digest_that_was_changed_in_a_store_s_journal_is_no_proof(
    hub: HubServer, tmp_path: Path
) -> None:
    url = f"file://{tmp_path / 'store'}"
    assert to_store(hub, url).returncode == 0
    journal = tmp_path / "store" / ".k31ctl" / "journal.json"
    state = json.loads(journal.read_bytes())
    state["files"]["config.json"]["sha256"] = "0" * 64
    journal.write_text(json.dumps(state))
    hub.forget()
    assert to_store(hub, url).returncode == 0
    assert hub.num_bytes() == len(hub.files["config.json"])
    record = json.loads((tmp_path / "store" / "k31ctl-manifest.json").read_bytes())
    told = {file["path"]: file["sha256"] for file in record["files"]}
    assert told["config.json"] == hub.sha256("config.json")


def test_plain_files_are_a_store_like_another(hub: HubServer, tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'store'}"
    assert to_store(hub, url).returncode == 0
    assert is_whole(hub, tmp_path / "store")
    back = fetched(hub, tmp_path / "b", "--offline", "--from-peer", url)
    assert (back.returncode, is_whole(hub, tmp_path / "b")) == (0, True)


@pytest.mark.parametrize(
    ("url", "message", "remedy"),
    [
        ("s3://b/p", "needs a package that is not installed", "pip install 'k31ctl[objectstore]'"),
        ("nosuch://b/p", "no such kind of storage", "write s3://BUCKET/PREFIX"),
        ("memory://b/p", "this store cannot keep a file back until it is proven", "use a store"),
    ],
)
def test_what_a_store_lacks_is_said(hub: HubServer, url: str, message: str, remedy: str) -> None:
    program = (
        "import sys\nsys.modules['s3fs'] = None\n"
        "from k31ctl.cli.main import main\nmain(sys.argv[1:])\n"
    )
    done = subprocess.run(
        [
            *[sys.executable, "-c", program, "fetch", hub.repo],
            *["--to", url, "--endpoint", hub.url],
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )
    assert done.returncode in (3, 4)
    assert message in done.stderr
    assert f"   do: {remedy}" in done.stderr
