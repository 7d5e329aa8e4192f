from pathlib import Path

import pytest

from k31ctl.catalog import Kind, Store, default_folders, load_node
from k31ctl.catalog.engines import load_engine
from k31ctl.errors import ProfileError


def folder(root: Path, **profiles: str) -> Path:
    (root / "hardware").mkdir(parents=True)
    for name, text in profiles.items():
        (root / "hardware" / f"{name}.yaml").write_text(text)
    return root


def test_a_later_folder_replaces_a_profile_whole(tmp_path: Path) -> None:
    first = folder(tmp_path / "1", a="id: a\nname: first\nextra: 1\n", b="id: b\n")
    second = folder(tmp_path / "2", a="id: a\nname: second\n")
    store = Store((first, second))
    assert store.ids(Kind.HARDWARE) == ["a", "b"]
    raw, where = store.load("hardware", "a")
    assert raw == {"id": "a", "name": "second"}
    assert where == str(second / "hardware" / "a.yaml")


@pytest.mark.parametrize("profile_id", ["8x-b30", "8xb300", "8X-B300"])
def test_an_unknown_id_is_answered_with_the_nearest(profile_id: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load_node(Store(default_folders()), profile_id)
    assert caught.value.what == f"no profile is called '{profile_id}'"
    assert "8x-b300" in caught.value.remedy


@pytest.mark.parametrize("profile_id", ["../hardware/8x-b300", "/etc/passwd", "", "8x-b300.yaml"])
def test_an_id_is_a_name_and_never_a_path(profile_id: str) -> None:
    with pytest.raises(ProfileError, match="no profile is called"):
        load_node(Store(default_folders()), profile_id)


def test_an_unknown_kind_is_answered_with_the_kinds() -> None:
    with pytest.raises(ProfileError) as caught:
        Store(()).ids("gpus")
    assert (
        caught.value.remedy
        == "use one of models, hardware, engines, drafts, prices, speed, storage, startup, "
        "measurements, licences, flags, recipes"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("id: b\n", "id is 'b', but the file is named a.yaml"),
        ("name: b\n", "id is None, but the file is named a.yaml"),
        ("- a\n", "not a mapping"),
        ("#" * (4 * 2**20 + 1), "larger than 4194304 bytes"),
    ],
)
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str, what: str) -> None:
    with pytest.raises(ProfileError) as caught:
        Store((folder(tmp_path, a=text),)).load(Kind.HARDWARE, "a")
    assert caught.value.what == what


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    root = folder(tmp_path)
    (root / "hardware" / "a.yaml").write_bytes(b"id: \xff")
    with pytest.raises(ProfileError, match="not UTF-8 text"):
        Store((root,)).load(Kind.HARDWARE, "a")


def test_a_folder_without_profiles_is_refused_rather_than_ignored(tmp_path: Path) -> None:
    with pytest.raises(ProfileError) as caught:
        default_folders([tmp_path / "missing"])
    assert caught.value.where == str(tmp_path / "missing")


def test_a_store_decodes_a_profile_once_and_another_store_anew() -> None:
    store, other = Store(default_folders()), Store(default_folders())
    found = load_engine(store, "vllm-0.33.0")
    assert load_engine(store, "vllm-0.33.0") is found
    assert load_engine(other, "vllm-0.33.0") is not found
    assert (load_engine(other, "vllm-0.33.0"), other, hash(other)) == (found, store, hash(store))
