"""What cannot be is refused with what is wrong, where, and what helps: in this process."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

import k31ctl
from k31ctl.api.machine import require_engine
from k31ctl.bench.endpoint import parse_endpoint
from k31ctl.cli.main import main
from k31ctl.cli.options import share
from k31ctl.errors import InputError, ProfileError, UsageError

NOBODY = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("arguments", "code", "what", "at", "do"),
    [
        ("serve --plan {fifo}", 3, "not a regular file", "{fifo}", "name a file; a folder of"),
        ("serve --context 0", 2, "'0' is not between 1 and 1,099,511,627,776 tokens", "--context",
         "the command's --help explains --context"),
        ("plan --html .", 3, "cannot write .: is a directory", ".", "name a file"),
        ("plan --engine vllm@", 2, "'vllm@' names no version", "--engine", "write vllm, or"),
        ("plan --memory-fraction 0", 2, "0 is not above 0 and up to 1", "--memory-fraction", "0.9"),
        ("plan --state-ratio 0", 2, "0 is not above 0 and up to 1,000", "--state-ratio", "0.9"),
        ("plan --kv-memory 5", 2, "'5' has no unit", "--kv-memory", "write 42.23GiB"),
        ("plan --rate 1e-300", 2, "1e-300 is not a rate from 0.000001 to 1,000,000", "--rate",
         "such as 0.5"),
        ("plan --price 1e-320", 2, "'1e-320' is not an amount from 0.000001 to 10,000 US dollars",
         "--price", "7.40"),
        ("plan --cached-fraction x", 2, "'x' is not a number", "--cached-fraction", "0.5 or 50%"),
        ("plan kimi-k4", 3, "no profile is called 'kimi-k4'", "models/kimi-k4",
         "k31ctl profiles list models shows all"),
        ("plan --max-model-len 2k --prompt-tokens 8k", 2,
         "a context of 9,216 tokens is beyond --max-model-len 2,048", "--max-model-len", "shorter"),
        ("serve kimi-k3 --interface eth0;id", 2, "'eth0;id' is not a name", "--interface", "use"),
        ("serve kimi-k3 --hosts a;id,b", 2, "'a;id,b' is not a name", "--hosts", "use letters"),
        ("serve kimi-k3 --image a;rm", 2, "'a;rm' is not the name of an image", "--image", "TAG"),
        ("serve kimi-k3 --served-name a\nb", 2, "'a\\nb' holds a control character",
         "--served-name", "leave it out"),
        ("bench {nobody} --duration nan", 2, "nan is not 0.1 or more", "--duration", "0.1"),
    ],
)  # fmt: skip
def test_a_refusal_says_what_where_and_what_helps(
    arguments: str, code: int, what: str, at: str, do: str,
    tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    given = [word.format(fifo=fifo, nobody=NOBODY) for word in arguments.split(" ")]
    with pytest.raises(SystemExit) as stopped:
        main(given)
    said = capsys.readouterr()
    assert (stopped.value.code, said.out) == (code, "")
    assert said.err.startswith(f"error: {what}\n   at: {at.format(fifo=fifo)}\n   do: ")
    assert do in said.err


def test_a_share_may_be_percent_and_a_short_limit_is_the_context() -> None:
    half = k31ctl.plan("kimi-k3", cached_fraction=0.5, max_model_len=2048)
    assert half.request.contexts == (2048,)
    assert half.request.workload is not None
    assert half.request.workload.cached_fraction == share("50%") == share(0.5)


@pytest.mark.parametrize("function", [k31ctl.plan, k31ctl.search, k31ctl.launch])
def test_a_draft_of_no_name_is_none_that_is_known(function: Any) -> None:
    with pytest.raises(ProfileError, match="no profile is called ''"):
        function(draft="")


@pytest.mark.parametrize("url", ["http://127.0.0.1\r\n:9", "http://a/\nb", "http://a /v1"])
def test_a_url_with_blanks_or_line_ends_is_none(url: str) -> None:
    with pytest.raises(UsageError, match="is not an HTTP URL"):
        parse_endpoint(url, token=None)


def test_a_package_that_is_missing_is_named_as_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError, match=r"needs (.*, )?pillow(, .*)?, which (is|are) not"):
        require_engine()
