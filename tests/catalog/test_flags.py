"""Catalogs of flags: which release a name stands for, and what a file must hold."""

from itertools import pairwise
from pathlib import Path

import pytest

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.flag_text import catalog_text
from k31ctl.catalog.flags import find_flags, load_flags
from k31ctl.catalog.json_profile import parse_json
from k31ctl.core.release import choose_release, release_key
from k31ctl.errors import ProfileError

STORE = Store(default_folders())


@pytest.mark.parametrize(
    ("engine", "version", "num_flags", "num_variables", "num_beside"),
    [
        ("vllm", "0.33.0", 321, 318, 0),
        ("sglang", "0.5.23", 531, 770, 98),
        ("tokenspeed", "0.1.1", 186, 67, 159),
    ],
)
def test_a_catalog_holds_what_the_release_has(
    engine: str, version: str, num_flags: int, num_variables: int, num_beside: int
) -> None:
    catalog = find_flags(STORE, f"{engine}@{version}").catalog
    assert len(catalog.flags) == num_flags
    assert len(catalog.environment_variables) == num_variables
    assert len(catalog.gateway.flags if catalog.gateway else ()) == num_beside


@pytest.mark.parametrize(
    ("spec", "version", "relation"),
    [
        ("vllm", "0.33.0", ""),
        ("vllm@0.33.0", "0.33.0", ""),
        ("vllm@v0.33", "0.33.0", ""),
        ("vllm@0.33.1", "0.33.0", "is newer"),
        ("vllm@0.33.0rc1", "0.33.0", "is older"),
        ("vllm@0.27.1", "0.33.0", "is older"),
        ("vllm@main", "0.33.0", "is not a release"),
        ("sglang@kimi-k31-pro", "0.5.23", "is not a release"),
    ],
)
def test_a_version_without_a_catalog_takes_the_nearest_and_says_so(
    spec: str, version: str, relation: str
) -> None:
    found = find_flags(STORE, spec)
    assert found.catalog.version == version
    assert relation in found.warning
    assert bool(found.warning) == bool(relation)


def test_an_engine_without_flags_is_answered_with_those_that_have() -> None:
    with pytest.raises(ProfileError) as caught:
        find_flags(STORE, "vlm")
    assert "vllm-0.33.0" in caught.value.remedy


def test_releases_stand_in_the_order_they_came_out() -> None:
    order = ["0.5.9", "0.5.23.dev1", "0.5.23rc1", "0.5.23rc2", "0.5.23", "0.5.23.post1", "0.6"]
    keys = [release_key(version) for version in order]
    assert all(a is not None and b is not None and a < b for a, b in pairwise(keys))
    assert release_key("0.33") == release_key("v0.33.0+cu130")


def test_between_two_known_releases_the_older_counts() -> None:
    chosen = choose_release("0.28.3", ["0.27.1", "0.33.0"])
    assert (chosen.version, chosen.relation) == ("0.27.1", "newer")


@pytest.mark.parametrize("profile_id", STORE.ids("flags"))
def test_a_catalog_is_written_as_it_was_read(profile_id: str) -> None:
    path = STORE.paths("flags")[profile_id]
    raw = parse_json(path.read_text(), where="here")
    assert isinstance(raw, dict)
    assert catalog_text(raw) == path.read_text()


def test_the_first_bad_key_of_a_catalog_is_named(tmp_path: Path) -> None:
    (tmp_path / "flags").mkdir()
    text = STORE.paths("flags")["vllm-0.33.0"].read_text()
    bad = text.replace('"dest": "additional_config"', '"destination": "additional_config"', 1)
    (tmp_path / "flags" / "vllm-0.33.0.json").write_text(bad)
    with pytest.raises(ProfileError, match=r"unknown key flags\[0\]\.destination"):
        load_flags(Store((tmp_path,)), "vllm-0.33.0")


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}', "{", "[" * 100_000, ""]
)
def test_json_that_surprises_is_refused(text: str) -> None:
    with pytest.raises(ProfileError, match="here"):
        parse_json(text, where="here")
