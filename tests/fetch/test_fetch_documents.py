import json
from pathlib import Path

from jsonschema import Draft202012Validator

import k31ctl as package
from k31ctl.fetch.manifest import read_manifest
from tests.fetch.conftest import Fetch
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
