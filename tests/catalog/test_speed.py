"""Parameters of the speed model: what is packaged, and what a calibration file may replace."""

from pathlib import Path

import pytest

from k31ctl.catalog.speed import calibrated, load_speed
from k31ctl.catalog.store import Store, default_folders
from k31ctl.core.speed_parameters import Parameter, parameter, tables
from k31ctl.errors import ProfileError

PACKAGED = load_speed(Store(default_folders()))
ENTRY = (
    "{value: 0.001, spread: 0.1, prior: 0.002, prior_spread: 0.2, why: ours, source: a run, "
    "basis: measured}"
)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def refusal(tmp_path: Path, text: str) -> ProfileError:
    path = written(tmp_path, text)
    with pytest.raises(ProfileError) as caught:
        calibrated(PACKAGED, path)
    assert str(path) in caught.value.where
    return caught.value


def test_every_packaged_table_has_a_default() -> None:
    for table in tables(PACKAGED).values():
        assert parameter(table) is table["default"]


def test_an_entry_for_the_first_known_key_counts() -> None:
    table = PACKAGED.layer_overhead_s
    assert parameter(table, "unheard", "sm_90", "gfx950") is table["sm_90"]


def test_a_file_replaces_its_own_entries_and_leaves_the_rest(tmp_path: Path) -> None:
    found = calibrated(PACKAGED, written(tmp_path, f"layer_overhead_s: {{sm_90: {ENTRY}}}"))
    changed = found.layer_overhead_s
    assert changed["sm_90"].value == 0.001
    assert changed["default"] == PACKAGED.layer_overhead_s["default"]
    assert changed.keys() == PACKAGED.layer_overhead_s.keys()
    for name, table in tables(found).items():
        assert name == "layer_overhead_s" or table == tables(PACKAGED)[name]


def test_a_file_may_add_an_entry_and_name_itself(tmp_path: Path) -> None:
    text = f"id: mine\nname: Mine\nstep_overhead_s: {{tokenspeed: {ENTRY}}}"
    found = calibrated(PACKAGED, written(tmp_path, text))
    assert (found.id, found.name, found.checked) == ("mine", "Mine", PACKAGED.checked)
    assert "tokenspeed" in found.step_overhead_s.keys() - PACKAGED.step_overhead_s.keys()


def test_the_packaged_entries_written_back_change_nothing(tmp_path: Path) -> None:
    entry: Parameter = PACKAGED.dense_read_fraction["default"]
    text = (
        f"dense_read_fraction: {{default: {{value: {entry.value}, spread: {entry.spread}, prior: "
        f"{entry.prior}, prior_spread: {entry.prior_spread}, why: '{entry.why}', source: "
        f"'{entry.source}', basis: {entry.basis}}}}}"
    )
    assert calibrated(PACKAGED, written(tmp_path, text)) == PACKAGED


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("0.001", ".nan", ".nan is not a finite number"),
        ("0.001", ".inf", ".inf is not a finite number"),
        ("0.001", "0", "step_overhead_s.default: value and prior must be above 0"),
        ("0.001", "-1", "step_overhead_s.default: value and prior must be above 0"),
        ("0.001", "1000000", "step_overhead_s.default: value and prior must be above 0 and below"),
        ("0.001", "fast", "step_overhead_s.default.value: 'fast' is not"),
        ("value: 0.001, ", "", "missing key step_overhead_s.default.value"),
        ("0.002", "0", "step_overhead_s.default: value and prior must be above 0"),
        ("spread: 0.1", "spread: -0.1", "step_overhead_s.default: spread and prior_spread must"),
        ("spread: 0.1", "spread: 3", "step_overhead_s.default: spread and prior_spread must"),
        ("basis: measured", "basis: guessed", "step_overhead_s.default.basis: 'guessed' is not"),
        ("why: ours", "whys: ours", "step_overhead_s.default.why"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_by_its_key(
    tmp_path: Path, old: str, new: str, what: str
) -> None:
    text = f"step_overhead_s: {{default: {ENTRY}}}"
    assert what in refusal(tmp_path, text.replace(old, new, 1)).what


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("5", "not a mapping"),
        ("- 5", "not a mapping"),
        ("", "0 documents"),
        ("speed: {}", "unknown key 'speed'"),
        ("id: mine", "holds no parameter"),
        ("step_overhead_s: {}", "holds no parameter"),
        ("step_overhead_s:", "holds no parameter"),
        ("step_overhead_s: 5", "step_overhead_s is not a mapping"),
        ("step_overhead_s: [5]", "step_overhead_s is not a mapping"),
        ("step_overhead_s: {default: 5}", "step_overhead_s.default: 5 is not a mapping"),
    ],
)
def test_a_file_of_another_shape_is_refused(tmp_path: Path, text: str, what: str) -> None:
    assert what in refusal(tmp_path, text).what


def test_a_missing_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read") as caught:
        calibrated(PACKAGED, tmp_path / "none.yaml")
    assert caught.value.where.endswith("none.yaml")


def test_a_profile_without_a_default_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "speed"
    folder.mkdir()
    source = next(each / "speed" / "kimi.yaml" for each in default_folders())
    text = source.read_text().replace("pipeline_hop_s:\n  default:", "pipeline_hop_s:\n  vllm:")
    (folder / "kimi.yaml").write_text(text)
    with pytest.raises(ProfileError, match="pipeline_hop_s has no default"):
        load_speed(Store((*default_folders(), tmp_path)))
