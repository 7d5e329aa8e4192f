"""A repository on a loopback hub, inspected by range requests."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from k31ctl.catalog import Store, default_folders
from k31ctl.errors import K31Error, UsageError
from k31ctl.fetch.inspection import Inspection
from k31ctl.fetch.remote_inspection import inspect_hub
from tests.fetch.hub_server import REPO, HubServer, running_hub
from tests.fetch.tiny_checkpoint import INDEX, SHARDS, write_tiny

STORE = Store(default_folders(()))
BALLAST = 3_000_000


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[HubServer]:
    write_tiny(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with running_hub(HubServer(files=files)) as running:
        yield running


def inspected(hub: HubServer, spec: str = f"hub:{REPO}") -> Inspection:
    return inspect_hub(STORE, spec, model_spec=None, endpoints=[hub.url])


def test_a_repository_is_proven_by_its_headers_alone(hub: HubServer) -> None:
    found = inspected(hub)
    assert found.is_proven
    assert found.model.name == REPO.split("/")[1]
    assert found.folder == f"hub:{REPO}@0123456789ab"


def test_one_request_a_file_brings_its_header(hub: HubServer) -> None:
    inspected(hub)
    asked = [request.path for request in hub.asked if "/cdn/model-0" in request.path]
    names = [path.split("?")[0].rpartition("/")[2] for path in asked]
    assert sorted(names) == sorted(SHARDS)


def test_tensor_data_is_not_asked_for(hub: HubServer) -> None:
    path = SHARDS[0]
    raw = hub.files[path]
    length = 8 + int.from_bytes(raw[:8], "little")
    hub.files[path] = raw + bytes(BALLAST)
    found = inspected(hub)
    assert [c.file for c in found.corrupt] == [path]
    assert hub.num_bytes() < length * 3 + BALLAST // 3


def test_a_truncated_shard_is_seen_without_reading_it(hub: HubServer) -> None:
    hub.files[SHARDS[1]] = hub.files[SHARDS[1]][:-5]
    (found,) = inspected(hub).corrupt
    assert (found.file, found.problem) == (
        SHARDS[1],
        "is 5 bytes too short for the tensors in its header",
    )


def test_a_repository_without_an_index_is_read_whole(hub: HubServer) -> None:
    del hub.files[INDEX]
    assert inspected(hub).is_proven


@pytest.mark.parametrize("length", [0, 2**63, 2**64 - 1, 10**8 + 1])
def test_a_hostile_length_is_refused(hub: HubServer, length: int) -> None:
    hub.files[SHARDS[2]] = length.to_bytes(8, "little") + os.urandom(100_000)
    found = inspected(hub)
    assert SHARDS[2] in {c.file for c in found.corrupt}
    assert not found.is_proven


@pytest.mark.parametrize("spec", ["hub:", "hub:name", "hub:a/b/c", "hub:a/b@", "hub:../b"])
def test_what_names_no_repository_is_refused(hub: HubServer, spec: str) -> None:
    with pytest.raises(UsageError, match="names no repository"):
        inspected(hub, spec)


def test_a_broken_configuration_is_said_to_be_the_repository_s(hub: HubServer) -> None:
    hub.files["config.json"] = b"{"
    with pytest.raises(K31Error) as failure:
        inspected(hub)
    assert failure.value.place.startswith(f"hub:{REPO}@0123456789ab/config.json")
