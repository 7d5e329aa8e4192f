"""``k31ctl calibrate`` and ``plan --calibration`` as users run them."""

import json
import re
import subprocess
from collections.abc import Callable
from math import log
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import k31ctl as package
from k31ctl.core.learning import at
from k31ctl.core.speed_parameters import SpeedParameters
from tests.core.observations import deployment_of, load
from tests.core.runs import answer

Run = Callable[..., subprocess.CompletedProcess[str]]
SCHEMAS = Path(package.__file__).parent / "schemas"
ON = ("kimi-k3", "--on", "8x-b300", "--engine", "sglang")
LOAD = ("--prompt-tokens", "8000", "--output-tokens", "700", "--concurrency", "24")
B300 = deployment_of()
SWEEP = tuple(load(users, prompt) for users in (1, 4, 16, 64) for prompt in (256, 4096, 16_384))


def slower() -> SpeedParameters:
    """A site whose experts are read at 0.8 of what is known, with half as much overhead again."""
    names = [("expert_read_fraction", "default"), ("layer_overhead_s", "default")]
    return at(B300.parts.speed, names, [log(0.8), log(1.5)])


@pytest.fixture(scope="module")
def site(
    k31ctl: Run, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path, dict[str, Any]]:
    """The folder with plan and run, the calibration's file, and what was said."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "plan.json").write_text(k31ctl("plan", *ON, "--json").stdout)
    run = answer(B300, slower(), SWEEP, noise=0.02)
    (folder / "run.json").write_text(json.dumps(run))
    one = answer(B300, slower(), SWEEP[:1], noise=0.02)
    (folder / "one.json").write_text(json.dumps(one))
    out = folder / "site.yaml"
    done = k31ctl(*of(folder, "run.json"), "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return folder, out, document


def of(folder: Path, *names: str) -> tuple[str, ...]:
    runs = [str(folder / name) for name in names]
    return ("calibrate", *runs, "--plan", str(folder / "plan.json"))


def planned(k31ctl: Run, *more: str) -> dict[str, Any]:
    done = k31ctl("plan", *ON, *LOAD, "--json", *more)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_file_and_answer_meet_their_schemas(site: tuple[Path, Path, dict[str, Any]]) -> None:
    _, out, document = site
    for found, name in ((document, "calibrate"), (yaml.safe_load(out.read_text()), "calibration")):
        schema = json.loads((SCHEMAS / f"{name}.v1.schema.json").read_text())
        Draft202012Validator(schema).validate(found)


def test_what_was_slower_is_found(site: tuple[Path, Path, dict[str, Any]]) -> None:
    _, _, document = site
    found = {(p["table"], p["key"]): p for p in document["result"]["parameters"]}
    read = found["expert_read_fraction", "default"]
    assert log(read["value"] / (0.8 * read["prior"])) == pytest.approx(0, abs=3 * read["spread"])
    assert document["result"]["calibration"]["of"]["layouts"] == ["1 x 8x-b300, TP8"]


def test_a_plan_with_it_is_nearer_surer_and_says_why(
    k31ctl: Run, site: tuple[Path, Path, dict[str, Any]]
) -> None:
    before, after = planned(k31ctl), planned(k31ctl, "--calibration", str(site[1]))
    real = B300.performance(load(24, 8000, 700), slower()).tpot_s.value
    was, now = (found["result"]["performance"] for found in (before, after))
    assert abs(now["tpot_s"] / real - 1) < 0.05
    assert now["tpot_s_low"] <= real <= now["tpot_s_high"]
    assert now["tpot_s_high"] / now["tpot_s_low"] < 0.8 * was["tpot_s_high"] / was["tpot_s_low"]
    (said,) = [a for a in after["assumptions"] if a["id"] == "calibration"]
    assert "12 loads" in said["text"]
    assert after["inputs"]["deployment"]["calibration"] == str(site[1])
    assert after["warnings"] == before["warnings"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("kimi-k3", "--engine", "vllm"), "another engine: sglang, not vllm"),
        (("kimi-k3", "--engine", "sglang", "--on", "8x-b200"), "another GPU"),
        (("kimi-k3", "--engines", "sglang,vllm", "--search"), "another engine"),
    ],
)
def test_a_calibration_of_something_else_is_refused(
    k31ctl: Run,
    site: tuple[Path, Path, dict[str, Any]],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    done = k31ctl("plan", *arguments, "--calibration", str(site[1]))
    assert (done.returncode, done.stdout) == (4, "")
    assert words in done.stderr


def test_another_model_or_layout_is_warned_of(
    k31ctl: Run, site: tuple[Path, Path, dict[str, Any]]
) -> None:
    given = ("--engine", "sglang", "--nodes", "2", "--calibration", str(site[1]), "--json")
    warnings = " ".join(json.loads(k31ctl("plan", *given).stdout)["warnings"])
    assert "another model: kimi-k3, not kimi-k3.1-pro" in warnings
    assert "another layout" in warnings


def test_one_load_is_exit_4_writes_nothing_and_says_what_to_measure(
    k31ctl: Run, site: tuple[Path, Path, dict[str, Any]], tmp_path: Path
) -> None:
    out = tmp_path / "site.yaml"
    done = k31ctl(*of(site[0], "one.json"), "--out", str(out))
    assert (done.returncode, done.stdout, out.exists()) == (4, "", False)
    assert "measure also --concurrency" in done.stderr
    assert len(done.stderr.splitlines()) == 3


@pytest.mark.parametrize(("served", "longest"), [(None, 16_384), (4096, 2048)])
def test_no_prompt_is_asked_for_that_the_measured_server_would_refuse(
    site: tuple[Path, Path, dict[str, Any]], tmp_path: Path, served: int | None, longest: int
) -> None:
    run = answer(B300, slower(), [load(64, 1024)], noise=0.02)
    run["result"]["server"]["max_model_len"] = served
    (tmp_path / "run.json").write_text(json.dumps(run))
    with pytest.raises(package.RefusedError) as refused:
        package.calibrate(tmp_path / "run.json", plan=site[0] / "plan.json")
    asked = re.findall(r"--prompt-tokens (\d+)", refused.value.remedy)
    assert max(map(int, asked)) == longest


def test_what_is_measured_later_makes_good_what_was_missing(
    k31ctl: Run, site: tuple[Path, Path, dict[str, Any]], tmp_path: Path
) -> None:
    done = k31ctl(*of(site[0], "one.json", "run.json"), "--out", str(tmp_path / "site.yaml"))
    assert done.returncode == 0
    assert "12 loads fitted" in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["calibration"]["covariance"].pop(), "lower triangle"),
        (lambda d: d["calibration"].pop("of"), "missing key calibration.of"),
        (lambda d: d.pop("matmul_fraction"), "which the file does not hold"),
        (lambda d: d["calibration"].update(schema="k31ctl/calibration/v9"), "calibration.schema"),
    ],
)
def test_a_damaged_file_is_exit_3_and_named(
    k31ctl: Run,
    site: tuple[Path, Path, dict[str, Any]],
    tmp_path: Path,
    change: Callable[[dict[str, Any]], Any],
    words: str,
) -> None:
    document = yaml.safe_load(site[1].read_text())
    change(document)
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(document))
    done = k31ctl("plan", *ON, "--calibration", str(path))
    assert (done.returncode, done.stdout) == (3, "")
    assert words in done.stderr
    assert str(path) in done.stderr


def test_a_record_without_a_plan_asks_for_one(
    k31ctl: Run, site: tuple[Path, Path, dict[str, Any]]
) -> None:
    done = k31ctl("calibrate", str(site[0] / "run.json"))
    assert done.returncode == 3
    assert "--plan PLAN.json" in done.stderr
