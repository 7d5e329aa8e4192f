"""A hub with a small repository, and the program run against it."""

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fetch.hub_server import HubServer, running_hub
from tests.program import Done, program

ROOT = Path(__file__).parents[2]
Fetch = Callable[..., Done]


def command(hub: HubServer, folder: Path, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "k31ctl", "fetch", hub.repo, "--to", str(folder),
        "--endpoint", hub.url, *options,
    ]  # fmt: skip


def fetched(hub: HubServer, folder: Path, *options: str, **more: str) -> Done:
    """Run ``fetch`` of the hub's repository into a folder; the hub is named unless told not."""
    endpoint = [] if "--endpoint" in options or "--offline" in options else ["--endpoint", hub.url]
    return program(
        *("fetch", hub.repo, "--to", str(folder), *endpoint, *options),
        environment=environment(**more),
    )


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not _is_about_networks(k)}
    return kept | {"PYTHONPATH": str(ROOT), "HF_HOME": "/nonexistent", "COLUMNS": "80"} | more


def _is_about_networks(variable: str) -> bool:
    name = variable.lower()
    return name.startswith("hf_") or name.endswith(("_proxy", "_ca_bundle", "ssl_cert_file"))


@pytest.fixture(autouse=True)
def _no_network_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies and certificates of whoever runs the tests are not what is tested."""
    for variable in filter(_is_about_networks, list(os.environ)):
        monkeypatch.delenv(variable)


@pytest.fixture
def hub() -> Iterator[HubServer]:
    some = random.Random(7)
    files = {
        "config.json": b'{"model_type": "x"}',
        "LICENSE": b"you may",
        "model-00001-of-00002.safetensors": some.randbytes(3 * 2**20 + 17),
        "model-00002-of-00002.safetensors": some.randbytes(2 * 2**20),
        "sub/empty.bin": b"",
    }
    with running_hub(HubServer(files=files)) as running:
        yield running


@pytest.fixture
def fetch(hub: HubServer, tmp_path: Path) -> Fetch:
    def run(*options: str, **more: str) -> Done:
        return fetched(hub, tmp_path / "w", *options, **more)

    return run


def is_whole(hub: HubServer, folder: Path) -> bool:
    """Whether all files are here as published, and nothing of the work is left."""
    litter = [*folder.rglob("*.part"), *folder.rglob("*.tmp"), *folder.rglob("probe-*")]
    return not litter and all(
        (folder / path).read_bytes() == content for path, content in hub.files.items()
    )
