import json
import shlex
import subprocess
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

import k31ctl as package
from k31ctl.fetch.manifest import read_manifest
from tests.fetch.conftest import Fetch, command, environment
from tests.fetch.hub_server import COMMIT, HubServer

SCHEMA = Path(package.__file__).parent / "schemas" / "fetch.v1.schema.json"


def test_both_documents_meet_the_schema(fetch: Fetch) -> None:
    schema = Draft202012Validator(json.loads(SCHEMA.read_text()))
    for options in (("--dry-run", "--json"), ("--json",)):
        schema.validate(json.loads(fetch(*options).stdout))


def test_the_record_names_commit_digests_and_licence(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    assert fetch("--accepted-by", "Jo").returncode == 0
    found = read_manifest(tmp_path / "w")
    assert found is not None
    assert (found.commit, found.accepted_by, found.licence) == (COMMIT, "Jo", "Example Licence")
    assert found.licence_files == ("LICENSE",)
    assert {file.path: file.sha256 for file in found.files} == {
        path: hub.sha256(path) for path in hub.files
    }


@pytest.mark.parametrize(
    ("redirection", "url", "code"),
    [
        ("2>/dev/full", None, 0), ("2>&-", None, 0), ("2> >(:)", None, 0),
        ("2>/dev/full", "http://127.0.0.1:9", 6), ("2>&-", "http://127.0.0.1:9", 6),
    ],
)  # fmt: skip
def test_progress_that_nobody_can_read_does_not_end_a_run(
    hub: HubServer, tmp_path: Path, redirection: str, url: str | None, code: int
) -> None:
    hub.url = url or hub.url
    asked = shlex.join(command(hub, tmp_path / "w", "--retries", "1"))
    done = subprocess.run(
        ["bash", "-c", f"{asked} {redirection}"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )
    assert done.returncode == code
    assert done.stdout.startswith("5 of 5 files here and proven") == (code == 0)
