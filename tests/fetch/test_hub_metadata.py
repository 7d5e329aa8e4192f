"""The one question that a plan asks a hub, and the token that goes with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # loaded lazily
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.errors import EndpointError, InputError, K31Error, RefusedError
from k31ctl.fetch.hub import Hub, Snapshot
from k31ctl.fetch.hub_metadata import is_repository_name, token_from_environment
from tests.fetch.conftest import Fetch
from tests.fetch.hub_server import COMMIT, REPO, HubServer, running_hub, status_once

Answer = tuple[int, dict[str, str], bytes]


def asked(hub: HubServer, *, token: str | None = None, revision: str = "main") -> Snapshot:
    found = Hub(endpoints=[hub.url], token=token, max_retries=0)
    try:
        return found.snapshot(REPO, revision)
    finally:
        found.stop()


def answering(status: int, headers: dict[str, str], body: bytes = b"") -> Callable[[int], Answer]:
    return lambda _: (status, headers, body)


def test_huggingface_hub_reads_the_same_from_the_same_answer(hub: HubServer) -> None:
    hub.gated = "manual"
    theirs = HfApi(endpoint=hub.url, token=False).model_info(REPO, files_metadata=True)
    ours = asked(hub)
    assert theirs.siblings is not None
    assert {(f.path, f.size_bytes, f.sha256 or f.blob_id) for f in ours.files} == {
        (s.rfilename, s.size, s.lfs.sha256 if s.lfs else s.blob_id) for s in theirs.siblings
    }
    assert (ours.commit, ours.gated, ours.licence) == (theirs.sha, "manual", "Example Licence")


@pytest.mark.parametrize(
    ("status", "headers", "kind", "said"),
    [
        (401, {"X-Error-Code": "RepoNotFound"}, InputError, "there is no repository"),
        (404, {"X-Error-Code": "RepoNotFound"}, InputError, "there is no repository"),
        (401, {}, InputError, "there is no repository"),
        (404, {"X-Error-Code": "RevisionNotFound"}, InputError, "there is no revision 'main'"),
        (403, {"X-Error-Code": "GatedRepo"}, RefusedError, "private or gated"),
        (401, {"X-Error-Code": "GatedRepo"}, RefusedError, "private or gated"),
        (403, {}, RefusedError, "private or gated"),
        (
            401,
            {"X-Error-Message": "Invalid credentials in Authorization header"},
            RefusedError,
            "the token is not valid",
        ),
        (429, {}, EndpointError, "asks for fewer requests"),
        (500, {}, EndpointError, "the server answers 500"),
        (302, {}, EndpointError, "redirects to nowhere"),
        (302, {"Location": "file:///etc/passwd"}, EndpointError, "redirects to no address"),
    ],
)
def test_a_refusal_is_said_as_what_it_is(
    hub: HubServer, status: int, headers: dict[str, str], kind: type[K31Error], said: str
) -> None:
    hub.api_fault = answering(status, headers)
    with pytest.raises(kind, match=said):
        asked(hub)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>please sign in</html>", b"", b"[]", b"null", b"{}", b'{"sha": 1, "siblings": []}',
        b"[" * 100_000, b'{"sha": "ab/../c", "siblings": []}', b'{"sha": "ab", "siblings": {}}',
        b'{"sha": "ab", "siblings": [1]}', b'{"sha": "ab", "siblings": [{"rfilename": "a"}]}',
        b'{"sha": "ab", "siblings": [{"rfilename": "a", "size": true}]}',
        b'{"sha": "ab", "siblings": [{"rfilename": "a", "size": -1}]}', b"\xff\xfe",
    ],
)  # fmt: skip
def test_what_is_no_answer_of_a_hub_is_a_broken_endpoint(hub: HubServer, body: bytes) -> None:
    hub.api_fault = answering(200, {}, body)
    with pytest.raises(EndpointError):
        asked(hub)


@pytest.mark.parametrize("path", ["../a", "/a", "a/../b", "a//b", "a\\b", "", "a\0b", "./a"])
def test_a_path_that_leaves_the_folder_is_refused(hub: HubServer, path: str) -> None:
    document = {"sha": COMMIT, "siblings": [{"rfilename": path, "size": 1}]}
    hub.api_fault = answering(200, {}, json.dumps(document).encode())
    with pytest.raises(InputError, match="unsafe path"):
        asked(hub)


def test_a_renamed_repository_is_followed_with_the_token(hub: HubServer) -> None:
    hub.token = "hf_canary"
    moved = {"Location": f"/api/models/{REPO}/revision/main?blobs=true"}
    hub.api_fault = lambda number: (307, moved, b"") if number == 1 else None
    assert asked(hub, token=hub.token).commit == COMMIT
    assert [r.headers.get("Authorization") for r in hub.asked] == ["Bearer hf_canary"] * 2


def test_a_redirect_to_another_host_gets_no_token(hub: HubServer) -> None:
    with running_hub(HubServer(files={"a": b"1"})) as other:
        target = f"{other.url}/api/models/{REPO}/revision/main?blobs=true"
        hub.api_fault = answering(307, {"Location": target})
        assert [file.path for file in asked(hub, token="hf_canary").files] == ["a"]
        assert [r.headers.get("Authorization") for r in other.asked] == [None]


def test_redirects_without_end_are_given_up(hub: HubServer) -> None:
    hub.api_fault = answering(302, {"Location": f"/api/models/{REPO}"})
    with pytest.raises(EndpointError, match="more than 5 times"):
        asked(hub)
    assert len(hub.asked) == 6


def test_a_revision_is_one_part_of_the_address(hub: HubServer) -> None:
    asked(hub, revision="refs/pr/1?x#y")
    assert hub.asked[0].path.endswith("/revision/refs%2Fpr%2F1%3Fx%23y?blobs=true")


@given(
    st.text("ab9-._/é", max_size=12) | st.text(max_size=8) | st.integers(90, 99).map("n".__mul__)
)
def test_a_name_is_one_that_huggingface_hub_takes(name: str) -> None:
    try:
        validate_repo_id(name)
    except HFValidationError:
        assert not is_repository_name(name)
    else:
        assert is_repository_name(name)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"HF_TOKEN": "hf_a"},
        {"HF_TOKEN": " hf_a\r\n"},
        {"HF_TOKEN": "", "HUGGING_FACE_HUB_TOKEN": "hf_b"},
        {"HF_TOKEN": "hf_a", "HUGGING_FACE_HUB_TOKEN": "hf_b"},
        {"HF_TOKEN": "  ", "HUGGING_FACE_HUB_TOKEN": "hf_b"},
    ],
)
def test_the_token_is_the_one_of_huggingface_hub(
    variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert token_from_environment() == get_token()


def test_a_token_file_is_read_by_huggingface_hub(
    hub: HubServer, fetch: Fetch, tmp_path: Path
) -> None:
    hub.token = "hf_of_a_file"
    (tmp_path / "token").write_text("hf_of_a_file\n")
    done = fetch("--dry-run", HF_TOKEN="", HF_TOKEN_PATH=str(tmp_path / "token"))
    assert done.returncode == 0, done.stderr


def test_offline_is_offline(hub: HubServer, fetch: Fetch) -> None:
    done = fetch("--dry-run", HF_HUB_OFFLINE="1")
    assert (done.returncode, "HF_HUB_OFFLINE" in done.stderr, hub.asked) == (4, True, [])


def test_a_plan_asks_two_questions(hub: HubServer, fetch: Fetch) -> None:
    hub.redirect_host = None
    assert fetch("--dry-run").returncode == 0
    assert [request.path.split("?")[0] for request in hub.asked] == [
        f"/api/models/{REPO}/revision/main",
        f"/{REPO}/resolve/{COMMIT}/model-00001-of-00002.safetensors",
    ]


def planned(fetch: Fetch) -> Any:
    done = fetch("--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["result"]


def test_a_plan_does_not_wait_for_a_server_that_asks_for_patience(
    hub: HubServer, fetch: Fetch
) -> None:
    hub.fault = status_once(429, {"Retry-After": "300"}, times=100)
    found = planned(fetch)
    assert (found["rate_bytes_per_s"], found["eta_s"]) == (None, None)
    assert hub.counts["model-00001-of-00002.safetensors"] == 1


def test_a_plan_measures_a_slow_link_without_reading_all_of_it(
    hub: HubServer, fetch: Fetch
) -> None:
    hub.fault = lambda answer: setattr(answer, "rate", 1_000_000.0)
    found = planned(fetch)
    assert 100_000 < found["rate_bytes_per_s"] < 2_000_000
    assert hub.num_bytes() < 2**20


def test_a_plan_says_that_files_are_not_to_be_had(hub: HubServer, fetch: Fetch) -> None:
    hub.fault = status_once(403, {"X-Error-Code": "GatedRepo"}, times=100)
    done = fetch("--dry-run")
    assert (done.returncode, "private or gated" in done.stderr) == (4, True)


def test_huggingface_hubs_client_is_not_imported_for_a_plan(hub: HubServer, fetch: Fetch) -> None:
    done = fetch("--dry-run", PYTHONPROFILEIMPORTTIME="1")
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "k31ctl.fetch.hub_metadata" in loaded
    assert not {"huggingface_hub.hf_api", "huggingface_hub.errors", "k31ctl.cli.plan"} & loaded


def listing(*names: str, gated: object = False) -> bytes:
    files = [{"rfilename": name, "size": 1, "lfs": {"sha256": "a" * 64}} for name in names]
    return json.dumps({"sha": COMMIT, "siblings": files, "gated": gated}).encode()


@pytest.mark.parametrize("names", [("a", "a"), ("a", "a/b"), ("x/a/b", "x/a")])
def test_two_files_under_one_path_are_refused_before_the_first_byte(
    hub: HubServer, names: tuple[str, ...]
) -> None:
    hub.api_fault = answering(200, {}, listing(*names))
    with pytest.raises(InputError, match="two files under one path"):
        asked(hub)


def test_nothing_that_a_hub_says_can_move_the_cursor_or_turn_the_text(hub: HubServer) -> None:
    hub.api_fault = answering(200, {}, listing("a", gated="\x1b[31m"))
    assert asked(hub).gated == " [31m"
    hub.api_fault = answering(200, {}, listing("a\u202eb"))
    with pytest.raises(InputError, match="unsafe path"):
        asked(hub)


@pytest.mark.parametrize(
    "path",
    [
        "config\u200b.json", "config.json\ufeff", "\u2060", "a\u00adb", "a\u202eb", "a\u2028b",
        " ", "a/ /b", "\u3000", "\u3164", "\u2800/x", "a/\u00a0",
    ],
)  # fmt: skip
def test_a_path_that_does_not_show_what_it_is_is_refused(hub: HubServer, path: str) -> None:
    hub.api_fault = answering(200, {}, listing("config.json", path))
    with pytest.raises(InputError, match="unsafe path") as refused:
        asked(hub)
    assert refused.value.what.isascii()


@pytest.mark.parametrize("path", ["a b", " a", "naïve/é漢🙂.txt", "a\u3000b", "é\u0301", "ﷺ"])
def test_a_path_in_any_script_is_taken(hub: HubServer, path: str) -> None:
    hub.api_fault = answering(200, {}, listing(path))
    assert [file.path for file in asked(hub).files] == [path]


def test_a_token_that_no_header_takes_is_told_at_once_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_sécret")
    with pytest.raises(InputError, match="characters that no token has") as raised:
        token_from_environment()
    assert "cret" not in f"{raised.value}{raised.value.remedy}"
