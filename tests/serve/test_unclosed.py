"""What a script leaves open is found as bash finds it, and nothing is found in closed ones."""

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.serve.read.unclosed import unclosed

BASH = shutil.which("bash")
CLOSED = (
    "echo it\\'s # don't\n",
    "cat <<'X'\nit's \"open\n$(\nX\necho done\n",
    "cat <<-X\n\tit's\n\tX\n",
    "cat <<A <<B\n'\nA\n\"\nB\n",
    'a="$(echo "$(echo "x")")"\n',
    'a=$((1<<2)); ((b = a << 1)); cat <<<"x"\n',
    "case $a in\n  x) echo 1 ;;\n  y) echo 2 ;;\nesac\n",
    "args=(\n  # it's\n  --a 'b c'\n)\n",
    'echo "${b#\'"\'}"\n',
    "echo `date +'%H'`\n",
    "echo $'it\\'s'\n",
    "f() ( echo 1 )\nfor ((i=0; i<3; i++)); do echo $i; done\n",
    'vllm serve m --a \'{"b":1}\' \\\n  --c "d"\n',
)
OPEN = (
    ("\n\necho 'x\n", 3, "single quote"),
    ('a=1\nvllm serve "m --tp 8\n', 2, "double quote"),
    ('vllm serve m --a \'{"b":1}\n--c d\n', 1, "single quote"),
    ("cat > f.sh <<X\nvllm serve m\n", 1, "here-document up to X"),
    ("cat <<-'END'\n  x\n  END\n", 1, "here-document up to END"),
    ("echo 1\nA=$(hostname\n", 2, "$("),
    ("echo ${A\n", 1, "${"),
    ("echo `date\n", 1, "backtick"),
    ("args=(\n --a b\n", 1, "list in parentheses"),
)


@pytest.mark.parametrize("script", CLOSED)
def test_nothing_is_found_in_what_is_closed(script: str) -> None:
    assert unclosed(script) is None


@pytest.mark.parametrize(("script", "line", "what"), OPEN)
def test_what_is_open_is_told_with_its_line(script: str, line: int, what: str) -> None:
    found = unclosed(script)
    assert found is not None
    assert script.count("\n", 0, found.start) + 1 == line
    assert what in found.what


@pytest.mark.skipif(BASH is None, reason="bash judges, and it is not here")
@pytest.mark.parametrize("script", [*CLOSED, *(script for script, _, _ in OPEN)])
def test_bash_agrees(script: str) -> None:
    assert BASH is not None
    done = subprocess.run([BASH, "-n"], input=script, capture_output=True, text=True, check=False)
    refused = done.returncode != 0 or "here-document" in done.stderr
    assert refused == (unclosed(script) is not None), done.stderr


@given(st.text(alphabet="a '\"`$(){}<\n\\#=)X", max_size=60))
def test_any_text_is_read_to_its_end(text: str) -> None:
    found = unclosed(text)
    assert found is None or 0 <= found.start < len(text)
