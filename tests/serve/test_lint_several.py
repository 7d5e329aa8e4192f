"""Several files checked together: what runs what, and what cannot be read."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from k31ctl.catalog.hardware import load_node
from k31ctl.core.rules import Severity
from k31ctl.errors import InputError
from k31ctl.serve.fix import Fixed
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import LintedFile, lint_files
from tests.core.catalogs import STORE

GOOD = (
    "exec vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 "
    "--enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8"
)
ON = Asked(hardware="8x-b300", node=load_node(STORE, "8x-b300"), engine="vllm@0.33.0")


def written(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def checked(folder: Path, *names: str, asked: Asked = ON) -> dict[str, LintedFile]:
    found = lint_files(STORE, [str(folder / name) for name in names], asked)
    return {Path(each.name).name: each for each in found}


def errors(file: LintedFile) -> list[str]:
    return [each.id for each in file.findings if each.severity is not Severity.INFO]


@pytest.mark.parametrize(
    "call",
    [
        "bash node.sh",
        "./node.sh",
        'srun --nodes=1 bash "$folder"/node.sh',
        'exec "$(dirname "$0")/node.sh" 0',
        "nohup bash -x /opt/launch/node.sh > log 2>&1 &",
        "sudo -E env A=b ./node.sh",
        "ssh head bash /opt/node.sh",
    ],
)
def test_a_script_is_followed_and_what_is_wrong_is_told_where_it_stands(
    tmp_path: Path, call: str
) -> None:
    written(tmp_path, start_sh=f"#!/bin/bash\n{call}\n", node_sh=f"#!/bin/bash\n\n{GOOD} --oops\n")
    found = checked(tmp_path, "start.sh")
    assert errors(found["node.sh"]) == ["flag-unknown"]
    assert found["node.sh"].findings[0].where.endswith("node.sh:3")
    assert errors(found["start.sh"]) == []


def test_a_script_with_windows_line_ends_is_an_error_and_mended(tmp_path: Path) -> None:
    script = "#!/bin/bash\n" + GOOD.replace(" -tp", " \\\n  -tp") + "\n"
    (tmp_path / "crlf.sh").write_bytes(script.replace("\n", "\r\n").encode())
    (tmp_path / "unix.sh").write_text(script)
    found = checked(tmp_path, "crlf.sh", "unix.sh")
    assert errors(found["crlf.sh"]) == ["script-line-ends"]
    assert errors(found["unix.sh"]) == []
    assert found["crlf.sh"].fixed == Fixed(text=script, num_made=1)


def test_what_the_caller_exports_and_hands_over_counts_in_the_script(tmp_path: Path) -> None:
    start = "export VLLM_ENGINE_READY_TIMEOUT_S=60\nbash node.sh --oops\n"
    written(tmp_path, start_sh=start, node_sh=f'{GOOD} "$@"\n')
    found = checked(tmp_path, "start.sh", "node.sh")
    assert errors(found["node.sh"]) == ["flag-unknown", "ready-timeout"]


def test_the_nodes_of_a_batch_script_are_those_of_what_it_runs(tmp_path: Path) -> None:
    batch = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\nsrun bash node.sh\n"
    written(tmp_path, start_sbatch=batch, node_sh=GOOD.replace("-tp 8", "-tp 16") + "\n")
    assert "nodes-not-told" in errors(checked(tmp_path, "start.sbatch")["node.sh"])


def test_variables_of_a_sourced_file_are_known(tmp_path: Path) -> None:
    written(
        tmp_path,
        env_sh="export VLLM_ENGINE_READY_TIMEOUT_S=60\nEXTRA='--oops 1'\n",
        start_sh=f'source "$(dirname "$0")"/env.sh\n{GOOD} $EXTRA\n',
    )
    found = checked(tmp_path, "start.sh", "env.sh")
    assert set(found) == {"start.sh"}
    assert errors(found["start.sh"]) == ["flag-unknown", "ready-timeout"]
    assert found["start.sh"].findings[1].where.endswith("start.sh:1")


def test_a_compose_file_and_a_unit_are_followed_too(tmp_path: Path) -> None:
    written(
        tmp_path,
        compose_yaml="services:\n  a:\n    image: vllm/vllm-openai:v0.33.0\n    gpus: all\n"
        "    entrypoint: [bash, /launch/node.sh]\n",
        k3_service="[Service]\nExecStart=/bin/bash /opt/node.sh\n",
        node_sh=GOOD + "\n",
    )
    found = checked(tmp_path, "compose.yaml")
    assert errors(found["node.sh"]) == ["container-shm"]
    assert errors(checked(tmp_path, "k3.service")["node.sh"]) == []


def test_scripts_that_run_each_other_come_to_an_end(tmp_path: Path) -> None:
    written(tmp_path, a_sh="bash b.sh\n", b_sh=f"source a.sh\nbash a.sh\n{GOOD}\n")
    assert errors(checked(tmp_path, "a.sh", "b.sh")["b.sh"]) == []


def test_a_script_that_is_missing_is_named(tmp_path: Path) -> None:
    written(tmp_path, start_sh="bash elsewhere/node.sh\n")
    with pytest.raises(InputError, match=r"it runs elsewhere/node.sh, which is not beside it"):
        checked(tmp_path, "start.sh")


def test_one_bad_file_hides_nothing_of_the_others(tmp_path: Path) -> None:
    written(tmp_path, a_sh=GOOD + " --oops\n", b_sh="exec 'vllm serve\n", c_yaml="a: [\n")
    found = checked(tmp_path, "b.sh", "missing.sh", "a.sh", "c.yaml")
    assert errors(found["a.sh"]) == ["flag-unknown"]
    told = {name: each.failure.where for name, each in found.items() if each.failure is not None}
    assert set(told) == {"b.sh", "missing.sh", "c.yaml"}
    assert told["b.sh"].endswith("b.sh:1")
    assert all(each.fixed is None for each in found.values() if each.failure is not None)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.sh", f"#!/bin/bash\n{GOOD} --served-model-name 'k3\n", 2),
        ("a.sh", f"#!/bin/bash\ncat > f <<EOF\n{GOOD}\n", 2),
        ("a.service", f"[Service]\nExecStart={GOOD} --served-model-name 'k3\n", 2),
        ("a.yaml", f"services:\n  a:\n    image: x\n    command: {GOOD} 'k3\n", 4),
        (
            "a.yaml",
            "apiVersion: v1\nkind: ConfigMap\ndata:\n  run.sh: |\n    echo\n    vllm serve 'm\n",
            5,
        ),
    ],
)
def test_an_open_quote_is_one_message_with_its_line(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="never") as caught:
        checked(tmp_path, name)
    assert caught.value.where == f"{tmp_path / name}:{line}"


def test_a_folder_is_every_launch_file_in_it(tmp_path: Path) -> None:
    written(tmp_path, a_sh=GOOD + " --oops\n", prometheus_yaml="scrape_configs: []\n", x_md="it's")
    found = lint_files(STORE, [str(tmp_path)], ON)
    assert [Path(each.name).name for each in found] == ["a.sh"]


def test_a_folder_without_a_launch_is_said_to_have_none_or_passed_over(tmp_path: Path) -> None:
    (tmp_path / "plan.args").write_text("-tp 8")
    with pytest.raises(InputError, match="no launch file in this folder"):
        lint_files(STORE, [str(tmp_path)], ON)
    assert lint_files(STORE, [str(tmp_path)], replace(ON, only_launches=True)) == ()


def test_standard_input_that_is_closed_is_told() -> None:
    ended = subprocess.run(
        ["sh", "-c", 'exec "$0" -m k31ctl lint - <&-', sys.executable],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 3
    assert ended.stderr.startswith("error: standard input is closed")
