"""Scripts with what is only known at run time, and text that they merely print."""

from pathlib import Path

import pytest

from k31ctl.catalog.hardware import load_node
from k31ctl.core.rules import Severity
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import lint_files
from k31ctl.serve.read.shell import shell_commands
from tests.core.catalogs import STORE

SERVE = (
    "vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 "
    "--enable-auto-tool-choice --reasoning-parser kimi_k3"
)
BAD = "vllm serve moonshotai/Kimi-K3 --no-such-flag"


def errors(folder: Path, text: str, *, name: str = "launch.sh", nodes: int = 1) -> list[str]:
    """The rules of the errors that are found in a file with this text."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    asked = Asked(engine="vllm@0.33.0", node=load_node(STORE, "8x-b300"), nodes=nodes)
    (found,) = lint_files(STORE, [str(path)], asked)
    return [each.id for each in found.findings if each.severity is Severity.ERROR]


@pytest.mark.parametrize(
    "value",
    [
        "$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)",
        "$(hostname -I | cut -d' ' -f1)",
        "`hostname -I | cut -d' ' -f1`",
        "$(a $(b c) ${d:-e f})",
        "$((1 + 2))",
    ],
)
def test_what_a_command_prints_is_one_word_that_is_not_known(value: str) -> None:
    (command,) = shell_commands(f"A={value}\nvllm serve m --master-addr $A --tail")
    assert [w.resolved for w in command.words] == [True, True, True, True, False, True]
    assert command.words[4].text == value


def test_known_words_beside_an_unknown_one_stay_known() -> None:
    (command,) = shell_commands('A="--x $(b c) --y z"\nvllm serve m $A')
    words = [(w.text, w.resolved) for w in command.words[3:]]
    assert words == [("--x", True), ("$(b c)", False), ("--y", True), ("z", True)]


def test_a_head_node_out_of_slurm_is_no_error(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n"
        "export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0\n"
        "HEAD=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\n"
        f"srun {SERVE} -tp 16 --nnodes 2 --node-rank $SLURM_NODEID --master-addr $HEAD\n"
    )
    assert errors(tmp_path, text, name="launch.sbatch", nodes=2) == []


def test_a_size_that_is_counted_when_it_runs_is_no_error(tmp_path: Path) -> None:
    assert errors(tmp_path, f"TP=$(nvidia-smi -L | wc -l)\n{SERVE} -tp $TP\n") == []


@pytest.mark.parametrize(
    "printed",
    [
        "cat <<'X'\n{}\nX\n",
        "cat - <<X >&2\n{}\nX\n",
        ": <<'X'\n{}\nX\n",
        "cat <<X | less\n{}\nX\n",
        "cat <<X >/dev/null\n{}\nX\n",
        "usage() {{\ncat <<X\n{}\nX\n}}\n",
    ],
)
def test_text_that_is_only_printed_is_not_a_launch(printed: str, tmp_path: Path) -> None:
    assert errors(tmp_path, printed.format(BAD) + f"{SERVE} -tp 8\n") == []


@pytest.mark.parametrize(
    "kept",
    [
        "cat > run.sh <<'X'\n{}\nX\n",
        "cat <<X >> run.sh\n{}\nX\n",
        "cat <<X | ssh host bash\n{}\nX\n",
        "bash <<X\n{}\nX\n",
        "ssh host <<X\n{}\nX\n",
        "tee run.sh <<X >/dev/null\n{}\nX\n",
        "{{\ncat <<X\n{}\nX\n}} > run.sh\n",
        "(cat <<X\n{}\nX\n) | sbatch\n",
    ],
)
def test_text_that_is_run_or_written_to_a_file_is_a_launch(kept: str, tmp_path: Path) -> None:
    assert "flag-unknown" in errors(tmp_path, kept.format(BAD) + f"{SERVE} -tp 8\n")


def test_a_line_of_a_unit_ends_at_a_newline_only(tmp_path: Path) -> None:
    text = (
        "[Service]\nExecStart=/usr/bin/vllm serve '/data/a\u2028b' --no-such-flag\n"
        "LimitMEMLOCK=infinity\n"
    )
    assert "flag-unknown" in errors(tmp_path, text, name="kimi.service")
