"""Pipelines, action, hook and Containerfile as the programs that read them see them."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from k31ctl import __version__
from tests.ci.pipelines import (
    FOLDER,
    ROOT,
    github_steps,
    gitlab_steps,
    groovy_tree,
    jenkins_steps,
    program_in,
)

PROGRAMS = Path(sys.executable).parent
SCHEMAS = files("check_jsonschema") / "builtin_schemas" / "vendor"
WORKFLOWS = ("github-pull-request.yml", "github-nightly.yml")
JENKINSFILES = ("Jenkinsfile", "Jenkinsfile.nightly")
IMAGE = yaml.safe_load((FOLDER / "gitlab-ci.yml").read_text())[".k31ctl"]["image"]
STEPS = [
    *(step for name in WORKFLOWS for step in github_steps(name)),
    *gitlab_steps("gitlab-ci.yml"),
    *(step for name in JENKINSFILES for step in jenkins_steps(name)),
]


def said(*command: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(PROGRAMS / command[0]), *command[1:]],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def loaded(path: Path) -> Any:
    """A YAML file, with ``on`` as the word that GitHub reads."""
    document = yaml.safe_load(path.read_text())
    return {"on" if name is True else name: value for name, value in document.items()}


ACTION = loaded(ROOT / "action.yml")


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        *(("github-workflows", FOLDER / name) for name in WORKFLOWS),
        ("gitlab-ci", FOLDER / "gitlab-ci.yml"),
        ("github-actions", ROOT / "action.yml"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_a_file_meets_the_schema_of_its_system(schema: str, path: Path) -> None:
    document = json.loads((SCHEMAS / f"{schema}.json").read_text())
    Draft7Validator(document).validate(loaded(path))


def holds(condition: str, variables: dict[str, str]) -> bool:
    """Whether a condition of GitLab holds, of those that our file has: no brackets, only ==."""

    def value(word: str) -> str:
        return variables.get(word[1:], "") if word.startswith("$") else word.strip('"')

    def equal(comparison: str) -> bool:
        left, right = comparison.split(" == ")
        return value(left) == value(right)

    return any(all(map(equal, part.split(" && "))) for part in condition.split(" || "))


@pytest.mark.parametrize(
    ("source", "branch", "is_nightly", "expected"),
    [
        ("merge_request_event", "", "false", ["plan", "lint"]),
        ("push", "main", "false", ["lint"]),
        ("push", "other", "true", []),
        ("schedule", "main", "false", []),
        ("schedule", "main", "true", ["endpoint"]),
        ("web", "main", "false", []),
        ("web", "main", "true", ["endpoint"]),
    ],
)
def test_gitlab_runs_the_jobs_of_an_event_and_no_other(
    source: str, branch: str, is_nightly: str, expected: list[str]
) -> None:
    document = loaded(FOLDER / "gitlab-ci.yml")
    variables = {
        "CI_PIPELINE_SOURCE": source,
        "CI_COMMIT_BRANCH": branch,
        "CI_DEFAULT_BRANCH": "main",
        "K31CTL_NIGHTLY": is_nightly,
    }
    first: dict[str, dict[str, Any]] = {
        name: next((rule for rule in document[name]["rules"] if holds(rule["if"], variables)), {})
        for name in ("plan", "lint", "endpoint")
    }
    assert [name for name, rule in first.items() if rule and "when" not in rule] == expected
    assert document["endpoint"]["needs"] == []


@pytest.mark.parametrize("name", JENKINSFILES)
def test_a_jenkinsfile_is_groovy_with_one_pipeline(name: str) -> None:
    tree = groovy_tree(name)
    assert not tree.has_error
    assert [node.type for node in tree.named_children if "comment" not in node.type] == [
        "pipeline_statement"
    ]


def test_zizmor_finds_no_fault_in_workflows_action_and_hook() -> None:
    done = said(
        "zizmor",
        *("--offline", "--no-progress", "--persona", "pedantic", "--format", "json"),
        *("--config", "tests/ci/zizmor.yml"),
        *(f"docs/ci/{name}" for name in WORKFLOWS),
        *("action.yml", ".pre-commit-hooks.yaml"),
    )
    assert json.loads(done.stdout) == [], done.stderr


def test_shellcheck_finds_no_fault_in_any_step(tmp_path: Path) -> None:
    steps = [step.script for step in STEPS]
    steps += [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    for number, script in enumerate(steps):
        (tmp_path / f"{number}.sh").write_text(f"#!/usr/bin/env bash\n{script}")
    names = [f"{number}.sh" for number in range(len(steps))]
    done = said("shellcheck", "--severity=warning", "--exclude=SC1128", *names, folder=tmp_path)
    assert (done.stdout, done.returncode) == ("", 0)


def test_every_pipeline_installs_this_release() -> None:
    installs = [step for step in STEPS if "pip install" in step.script]
    assert len(installs) == 3 + 1 + 2
    for step in installs:
        assert step.environment["K31CTL"] == f"k31ctl=={__version__}"
        assert re.search(r'pip install .*"\$K31CTL"', step.script)


def test_no_key_is_on_a_command_line_and_only_what_asks_an_endpoint_gets_it() -> None:
    assert not [step for step in STEPS if "API_KEY" in step.script]
    given = [step for step in STEPS if "K31CTL_API_KEY" in step.environment and not step.sees_all]
    assert given == [step for step in STEPS if not step.sees_all and "bench" in step.script]


def test_jobs_have_a_time_limit_and_no_right_that_they_do_not_need() -> None:
    rights = {
        key: job.get("permissions", {}) | {"limit": job["timeout-minutes"] <= 60}
        for name in WORKFLOWS
        for key, job in loaded(FOLDER / name)["jobs"].items()
    }
    assert rights == {
        "plan": {"contents": "read", "limit": True},
        "lint": {"contents": "read", "actions": "read", "security-events": "write", "limit": True},
        "endpoint": {"limit": True},
    }
    assert [loaded(FOLDER / name)["permissions"] for name in WORKFLOWS] == [{}, {}]


@pytest.mark.parametrize(
    ("flag", "code", "report", "told"),
    [
        ("--trust-remote-code", 0, "reports/lint.sarif", "./reports/lint.sarif"),
        ("", 4, "{folder}/reports/lint.sarif", "{folder}/reports/lint.sarif"),
    ],
)
def test_the_action_says_its_exit_code_and_its_report(
    tmp_path: Path, flag: str, code: int, report: str, told: str
) -> None:
    deployment = tmp_path / "deploy" / "k 3"
    deployment.mkdir(parents=True)
    (deployment / "launch.sh").write_text(
        f"vllm serve moonshotai/Kimi-K3 -tp 8 {flag} --enable-auto-tool-choice "
        "--tool-call-parser kimi_k3 --reasoning-parser kimi_k3\n"
    )
    step = ACTION["runs"]["steps"][-1]
    tools, outputs = program_in(tmp_path / "tools" / "bin"), tmp_path / "outputs"
    (tmp_path / "step").write_text(step["run"])
    given = {
        "command": "lint",
        "args": "deploy/*/\n  --on=8x-b300  \n\t\n--engine=vllm@0.33.0\n--format=sarif\n",
        "report": report.format(folder=tmp_path),
        "working-directory": ".",
    }
    environment = {
        name: given.get(text[len("${{ inputs.") : -len(" }}")], str(tools.parent))
        for name, text in step["env"].items()
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(tmp_path / "step")],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "GITHUB_OUTPUT": str(outputs), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    path = told.format(folder=tmp_path)
    assert outputs.read_text() == f"report={path}\nexit-code={code}\n"
    log = json.loads((tmp_path / "reports" / "lint.sarif").read_text())
    assert len(log["runs"][0]["results"]) == bool(code)


def test_the_hook_checks_launch_files_and_passes_over_the_others(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    program = program_in(tmp_path / "bin") / "k31ctl"
    entry = hook["entry"].replace("k31ctl", shlex.quote(str(program)), 1)
    local = {**hook, "language": "system", "entry": entry}
    config = {"repos": [{"repo": "local", "hooks": [local]}]}
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    (repository / "launch.sh").write_text("vllm serve moonshotai/Kimi-K3 -tp 8\n")
    (repository / "other.sh").write_text("date\n")
    (repository / "chart.yaml").write_text("a: {{ .Values.a }}\n")
    (repository / "notes.md").write_text("vllm serve is what starts it\n")
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *words], cwd=repository, check=True)
    assert (
        said("pre-commit", "validate-manifest", str(ROOT / ".pre-commit-hooks.yaml")).returncode
        == 0
    )
    done = said("pre-commit", "run", "--all-files", folder=repository)
    assert done.returncode == 1
    assert "- exit code: 4" in done.stdout
    assert "launch.sh:1  error  --trust-remote-code is missing" in done.stdout
    assert not [name for name in ("other.sh", "chart.yaml", "notes.md") if name in done.stdout]


def test_the_containerfile_has_no_fault_and_copies_what_its_builder_is_sent() -> None:
    done = said("hadolint", "--no-color", "Containerfile")
    assert (done.stdout, done.returncode) == ("", 0)
    text = (ROOT / "Containerfile").read_text()
    ignored = (ROOT / ".containerignore").read_text()
    assert (ROOT / ".dockerignore").read_text() == ignored
    sent = {line[1:] for line in ignored.splitlines() if line.startswith("!")}
    copied = {
        name for line in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE) for name in line.split()
    }
    assert copied == sent == {name for name in sent if (ROOT / name).exists()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {pattern.split("/")[0] for pattern in (*project["license-files"], project["readme"])}
    assert named <= copied
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE) == ["10001:10001"]
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {IMAGE}
