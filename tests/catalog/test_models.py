from pathlib import Path
from shutil import copyfile

import pytest

from k31ctl.catalog.models import load_model, repository_bytes
from k31ctl.catalog.store import Kind, Store, default_folders
from k31ctl.core.inventory import inventory
from k31ctl.errors import InputError, ProfileError

DATA = Path(__file__).parent.parent / "data"
STORE = Store(default_folders())


@pytest.mark.parametrize("profile_id", STORE.ids(Kind.MODELS))
def test_every_packaged_model_loads_under_its_own_id(profile_id: str) -> None:
    assert load_model(STORE, profile_id).id == profile_id


@pytest.mark.parametrize("profile_id", STORE.ids(Kind.MODELS))
def test_published_totals_are_never_less_than_the_derived_ones(profile_id: str) -> None:
    model = load_model(STORE, profile_id)
    found = inventory(model)
    assert model.published is None or (
        (model.published.num_tensors or found.num_tensors) >= found.num_tensors
        and (model.published.total_bytes or found.total_bytes) >= found.total_bytes
        and (model.published.total_params or found.total_params) >= found.total_params
    )


@pytest.mark.parametrize("spec", ["moonshotai/Kimi-K3", "MOONSHOTAI/kimi-k3"])
def test_a_hub_name_stands_for_its_profile(spec: str) -> None:
    assert load_model(STORE, spec).id == "kimi-k3"


def test_a_config_file_is_a_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-k3"
    folder.mkdir()
    copyfile(DATA / "kimi-k3.config.json", folder / "config.json")
    by_file = load_model(STORE, str(folder / "config.json"))
    by_folder = load_model(STORE, str(folder))
    assert by_file == by_folder
    assert by_file.name == "my-k3"
    assert by_file.templates == load_model(STORE, "kimi-k3").templates


def test_a_profile_goes_before_a_folder_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kimi-k3").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_model(STORE, "kimi-k3").id == "kimi-k3"
    with pytest.raises(InputError):
        load_model(STORE, "./kimi-k3")


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ProfileError) as caught:
        load_model(STORE, "kimi-k3.1")
    assert "kimi-k3.1-pro" in caught.value.remedy


@pytest.mark.parametrize("spec", ["nowhere/config.json", "a/b", "missing.json", "/no/such/place"])
def test_a_path_that_does_not_exist_is_an_input_error(spec: str) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_model(STORE, spec)


@pytest.mark.parametrize("spec", ["", "\0", "x" * 5000])
def test_a_name_that_cannot_be_one_is_a_profile_error(spec: str) -> None:
    with pytest.raises(ProfileError):
        load_model(STORE, spec)


def test_assumptions_of_the_profile_stand_behind_those_of_the_architecture() -> None:
    found = [a.id for a in load_model(STORE, "kimi-k3.1-pro").assumptions]
    assert found == ["indexer-widths", "k31-config", "dsa-key-names"]


def test_the_whole_release_is_larger_than_its_tensors() -> None:
    found = repository_bytes(STORE, "kimi-k3")
    assert found is not None
    assert found > inventory(load_model(STORE, "kimi-k3")).total_bytes


def test_a_misspelt_key_of_a_profile_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    text = (default_folders()[0] / "models" / "kimi-k3.yaml").read_text()
    (folder / "mine.yaml").write_text(
        text.replace("id: kimi-k3\n", "id: mine\n").replace("published:", "publishd:")
    )
    with pytest.raises(ProfileError, match="publishd"):
        load_model(Store((tmp_path,)), "mine")


def test_a_config_that_is_not_modelled_is_a_fault_of_its_profile(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    text = (default_folders()[0] / "models" / "kimi-k3.yaml").read_text()
    (folder / "kimi-k3.yaml").write_text(text.replace("hidden_size: 7168", "hidden_size: -1", 1))
    with pytest.raises(ProfileError, match=r"text_config\.hidden_size is -1") as caught:
        load_model(Store((tmp_path,)), "kimi-k3")
    assert caught.value.where.endswith("kimi-k3.yaml, config")


@pytest.mark.parametrize(
    ("place", "spec", "name"),
    [
        (".", "mine", "mine"),
        (".", "./mine/config.json", "mine"),
        ("mine", ".", "mine"),
        ("mine", "config.json", "mine"),
        ("mine", "./../linked", "linked"),
        (".", "./variant.json", "variant"),
        (".", "./variant.config.json", "variant"),
    ],
)
def test_a_model_of_ones_own_is_called_as_its_folder_or_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, spec: str, name: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "linked").mkdir()
    text = (DATA / "kimi-k3.config.json").read_text()
    for file in ("mine/config.json", "variant.json", "variant.config.json"):
        (tmp_path / file).write_text(text)
    (tmp_path / "linked" / "config.json").symlink_to(tmp_path / "variant.json")
    monkeypatch.chdir(tmp_path / place)
    assert load_model(STORE, spec).name == name
