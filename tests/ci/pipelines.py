"""The shell steps of the pipelines under docs/ci, run as each system runs them."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dekobon_tree_sitter_groovy as groovy
import yaml
from tree_sitter import Language, Node, Parser

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "ci"
# The PATH of an image of Python: this one, without what is installed for the tests.
IMAGE_PATH = f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin"
# What a file does not hold itself, and where the system has it from.
EXPRESSIONS = {
    "${{ vars.K31CTL_ENDPOINT }}": "K31CTL_ENDPOINT",
    "${{ secrets.K31CTL_API_KEY }}": "K31CTL_API_KEY",
    "${{ inputs.new_baseline }}": "K31CTL_NEW_BASELINE",
}


@dataclass(frozen=True)
class Step:
    """One piece of shell with the variables that the file sets for it.

    ``sees_all`` is whether the settings of the project reach it without being named, ``program``
    where the installation puts this program, or None where it puts it on the PATH.
    """

    job: str
    shell: tuple[str, ...]
    script: str
    environment: Mapping[str, str]
    sees_all: bool
    program: str | None = None

    def run(
        self, folder: Path, *, runner: Mapping[str, str], settings: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run it in a folder as the system would; settings go before what the file says."""
        (folder / ".step").write_text(self.script)
        own = {
            name: settings.get(EXPRESSIONS.get(text, name), text)
            for name, text in self.environment.items()
        }
        path = IMAGE_PATH
        if self.program is None:
            path = f"{program_in(folder / '.bin')}:{path}"
        elif not (folder / self.program).exists():
            program_in((folder / self.program).parent)
        environment = {**os.environ, "COLUMNS": "80", **runner, **own, "PATH": path}
        environment |= settings if self.sees_all else {}
        assert not [name for name, value in own.items() if "${{" in value]
        return subprocess.run(
            [*self.shell, str(folder / ".step")],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


def program_in(folder: Path) -> Path:
    """The folder with this program, in the place of the release that a pipeline installs."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "k31ctl"
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m k31ctl "$@"\n')
    program.chmod(0o755)
    return folder


def _variables(*blocks: Mapping[str, Any] | None) -> dict[str, str]:
    return {
        name: str(value["value"] if isinstance(value, dict) else value)
        for block in blocks
        for name, value in (block or {}).items()
    }


def github_steps(name: str) -> list[Step]:
    """Every ``run`` of a workflow, in order."""
    workflow = yaml.safe_load((FOLDER / name).read_text())
    assert workflow["defaults"] == {"run": {"shell": "bash"}}
    shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
    return [
        Step(
            job=job_name,
            shell=shell,
            script=step["run"],
            environment=_variables(workflow["env"], job.get("env"), step.get("env")),
            sees_all=False,
        )
        for job_name, job in workflow["jobs"].items()
        for step in job["steps"]
        if "run" in step
    ]


def gitlab_steps(name: str) -> list[Step]:
    """What is run before every job, and the script of each."""
    document = yaml.safe_load((FOLDER / name).read_text())
    shell, variables = ("bash", "-eo", "pipefail"), _variables(document["variables"])
    return [
        Step(job_name, shell, "\n".join(lines), variables, sees_all=True)
        for job_name, job in document.items()
        if isinstance(job, dict)
        for lines in (job.get("before_script"), job.get("script"))
        if lines
    ]


def groovy_tree(name: str) -> Node:
    """The syntax of a Jenkinsfile."""
    parser = Parser(Language(groovy.language()))
    return parser.parse((FOLDER / name).read_bytes()).root_node


def jenkins_steps(name: str) -> list[Step]:
    """Every ``sh`` of a Jenkinsfile, in order, under the name of its stage.

    Docker Pipeline gives a container every variable of a file but PATH.
    """
    text = (FOLDER / name).read_text()
    known = dict(re.findall(r"^        (\w+) = ['\"]([^'\"\n]*)['\"]", text, re.MULTILINE))
    found, stage = [], ""
    for stage_name, script in re.findall(r"stage\('(\w+)'\)|sh '''(.*?)'''", text, re.DOTALL):
        stage = stage_name or stage
        if script:
            plain = script.replace("\\\\", "\\")
            assert plain.startswith("#!/usr/bin/env bash\n")
            found.append(
                Step(stage.lower(), ("bash",), plain, known, True, program=".venv/bin/k31ctl")
            )
    return found
