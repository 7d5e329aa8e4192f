"""Scripts as this program reads them, beside what bash makes of them."""

import shlex
import subprocess
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.serve.read.shell import shell_commands
from k31ctl.serve.read.shell_text import TooDeepError

STUB = "vllm() { printf '%s\\0' \"$@\"; printf '\\n\\0'; }\n"
SCRIPTS = [
    "vllm serve m --a 'b c' --d \"e f\" g\\ h",
    "vllm serve m \\\n  --a b \\\n  --c d",
    'M=a/b; N="$M-x"; vllm serve $M "$N" ${M} "${M}/y"',
    "A=(--a 'b c'); A+=(--d e); vllm serve \"${A[@]}\"",
    "A='--a b --c d'; vllm serve m $A",
    "A='--a b'; vllm serve m \"$A\"",
    'f() { vllm serve "$1" "$@"; }\nf x y \'z w\'',
    'f() { vllm serve m "$@"; }\nf --a \'{"b": 1}\'',
    "export A=1 B='2 3'; vllm serve $A \"$B\"",
    "A=${NO_SUCH_VARIABLE:-deflt}; vllm serve $A ${NO_SUCH_VARIABLE:-other}",
    'vllm serve m --json \'{"a":true,"b":"c"}\' --json2 "{\\"a\\":1}"',
    "vllm serve m --x=$'a' --y='b'\"c\"d",
    "bash -c 'true'; if true; then vllm serve m; fi; { vllm serve n; }; (vllm serve o)",
    "true && vllm serve m || vllm serve n",
    "A=1 vllm serve m & wait",
    "vllm serve m # not this\n# vllm serve n\n",
    'unset M; M=q; vllm serve "$M" "" \'\'',
    "vllm serve m > /dev/null 2>&1; vllm serve n 2>/dev/null | cat",
    "vllm serve caf\u00e9 --a '\u00fc b' \"\u4e2d\u6587\"",
]


def read(script: str) -> list[list[str]]:
    """The words of every call of vllm in the order of the script."""
    found = []
    for command in shell_commands(script):
        texts = [word.text for word in command.words]
        if "vllm" in texts:
            found.append(texts[texts.index("vllm") + 1 :])
    return found


def run(script: str) -> list[list[str]]:
    """What bash gives to vllm, which here is a function that prints its arguments."""
    traced = script.replace("> /dev/null 2>&1", "").replace("2>/dev/null | cat", "")
    traced = traced.replace("true && vllm serve m || vllm serve n", "vllm serve m; vllm serve n")
    done = subprocess.run(
        ["bash", "-c", STUB + traced], capture_output=True, check=True, timeout=20
    )
    calls: list[list[str]] = [[]]
    for part in done.stdout.decode().split("\0")[:-1]:
        if part == "\n":
            calls.append([])
        else:
            calls[-1].append(part)
    return calls[:-1]


@pytest.mark.parametrize("script", SCRIPTS)
def test_words_are_those_that_bash_gives(script: str) -> None:
    assert read(script) == run(script)


@given(st.lists(st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=8), max_size=6))
@settings(max_examples=60, deadline=None)
def test_quoted_words_are_read_back(words: list[str]) -> None:
    (found,) = read(f"vllm serve {shlex.join(words)}")
    assert found == ["serve", *words]


MARKS = ("if", "then", "fi", "(", ")", "{", "}", '"', "'", "$(", "`", "<<E", "E", "\n", "case x in")
WORDS = (
    "vllm serve m",
    "$A",
    "${A[@]}",
    "A=(",
    "A+=",
    "f()",
    "f",
    ";",
    "|",
    "&&",
    "\\",
    "#",
    "esac",
)
FRAGMENTS = st.sampled_from((*MARKS, *WORDS))


@given(st.lists(FRAGMENTS, max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_text_is_read_or_refused(parts: list[str]) -> None:
    with suppress(TooDeepError):
        shell_commands(" ".join(parts))


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_certain_stands_where_it_is_said_to_stand(script: str) -> None:
    for command in shell_commands(script):
        for word in command.words:
            if word.certain and not word.nested:
                assert shlex.split(script[word.start : word.end]) == [word.text] or "$'" in script
