"""The examples of docs/service.md, run as they stand."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from k31ctl.engine.service.generator import Generation
from tests.engine.scripted import ScriptedGenerator, ids_of, served, small_model

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
EXAMPLES = re.findall(r"^```(python|sh)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"
RESPONSE = "Wet.<|close|>think<|sep|><|open|>response<|sep|>Take it.<|close|>response<|sep|>"
CALL = (
    '<|open|>tools<|sep|><|open|>call tool="get_weather" index="1"<|sep|><|open|>argument '
    'key="city" type="string"<|sep|>Oslo<|close|>argument<|sep|><|close|>call<|sep|>'
    "<|close|>tools<|sep|>"
)
END = "<|close|>message<|sep|><|end_of_msg|>"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    model = small_model(tmp_path_factory.mktemp("checkpoint"))

    def script(work: Generation) -> Sequence[int]:
        """Call a tool where there is one and it has not answered."""
        prompt = b"".join(model.tokenizer.bytes_of(token) for token in work.prompt_ids)
        calls = b"get_weather" in prompt and b"rain in Oslo" not in prompt
        return ids_of(model.tokenizer, RESPONSE + (CALL if calls else "") + END)

    with served(model, ScriptedGenerator(script)) as address:
        yield address


@pytest.mark.parametrize(("kind", "example"), EXAMPLES)
def test_an_example_of_the_page_works(url: str, kind: str, example: str) -> None:
    if kind == "sh" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["bash", "-c"] if kind == "sh" else [sys.executable, "-c"]
    done = subprocess.run(
        [*command, example.replace(ADDRESS, url)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Take it." in done.stdout


def test_the_page_has_examples() -> None:
    assert [kind for kind, _ in EXAMPLES] == ["sh", "python", "python", "python"]
