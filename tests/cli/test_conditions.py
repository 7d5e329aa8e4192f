"""Every command under conditions that nobody chose: each run takes other pairs of the two.

The commands run in this process, with streams of their own; ``test_streams.py`` has processes.
"""

import io
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from k31ctl.catalog import Store, default_folders
from k31ctl.cli.main import main
from k31ctl.tiny.checkpoint import write_tiny
from tests.fuzz.real_documents import plan_document, record

NOBODY = "http://127.0.0.1:9"
COMMANDS = (
    "plan", "plan --json", "plan --csv -", "plan --html {page}", "serve --as slurm --out {new}",
    "serve kimi-k3 --as shell", "serve --as compose --json",
    "inspect {tiny}", "inspect {tiny} --json", "verify {tiny}", "licence kimi-k3", "licence {tiny}",
    "lint {launch}", "lint {launch} --format sarif",
    "fetch o/n --to {new} --retries 0 --endpoint " + NOBODY, "bench " + NOBODY,
    "bench conformance " + NOBODY, "bench diff {run} {run}", "bench compare {run}",
    "bench report {run} --html {page}", "calibrate {run} --out {page}", "tiny {new}", "--help",
    "profiles list", "profiles show kimi-k3", "plan kimi-k4", "bench --nonsense", "plan {launch}",
)  # fmt: skip
FULL = Path("/dev/full")
ENGINE = ("torch", "safetensors", "tiktoken", "PIL", "starlette", "uvicorn")


@dataclass(frozen=True)
class Condition:
    """What is different from usual."""

    encoding: str = "utf-8"
    environment: Mapping[str, str] = field(default_factory=dict)
    unset: tuple[str, ...] = ()
    is_full: bool = False
    has_no_temporary: bool = False
    has_no_working_folder: bool = False


CONDITIONS = {
    "ascii": Condition(encoding="ascii"),
    "latin-1": Condition(encoding="latin-1"),
    "narrow": Condition(environment={"COLUMNS": "20"}),
    "one column": Condition(environment={"COLUMNS": "1", "TERM": "dumb"}),
    "no colour": Condition(environment={"NO_COLOR": "1", "TERM": "dumb"}),
    "no home": Condition(unset=("HOME",)),
    "home is a file": Condition(environment={"HOME": "/dev/null", "XDG_CACHE_HOME": "/dev/null"}),
    "no folder for temporary files": Condition(has_no_temporary=True),
    "no working folder": Condition(has_no_working_folder=True),
    "full disk": Condition(is_full=True),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("conditions")
    write_tiny(Store(default_folders()), folder / "tiny", model="kimi-k3", seed=0)
    (folder / "launch.sh").write_text("vllm serve moonshotai/Kimi-K3 -tp 8\n")
    (folder / "run").mkdir()
    for name, content in record().items():
        (folder / "run" / name).write_bytes(content)
    assert plan_document()
    names = {"tiny": "tiny", "launch": "launch.sh", "run": "run", "new": "new", "page": "page"}
    return {name: str(folder / place) for name, place in names.items()}


def run(command: str, places: Mapping[str, str], condition: Condition) -> tuple[int, str, str]:
    """The exit code of a command, and what it wrote to both streams."""
    raw = FULL.open("wb", buffering=0) if condition.is_full else io.BytesIO()
    out = io.TextIOWrapper(raw, encoding=condition.encoding)
    err = io.TextIOWrapper(io.BytesIO(), encoding=condition.encoding, errors="backslashreplace")
    own, sys.stdout = sys.stdout, out
    own_err, sys.stderr = sys.stderr, err
    try:
        main(command.format(**places).split())
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.stdout, sys.stderr = own, own_err
        if not isinstance(raw, io.BytesIO):
            with suppress(OSError):
                out.detach()
            raw.close()
    err.flush()
    said = err.buffer.getvalue().decode(condition.encoding)
    if isinstance(raw, io.BytesIO):
        out.flush()
        return code, raw.getvalue().decode(condition.encoding), said
    return code, "", said


@pytest.fixture
def fresh(places: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """Places of which those for new files are empty."""
    monkeypatch.setenv("COLUMNS", "80")
    yield places
    new = Path(places["new"])
    for path in sorted(new.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    if new.exists():
        new.rmdir()
    Path(places["page"]).unlink(missing_ok=True)


PAIRS = [
    pytest.param(command, condition, id=f"{command.split(' http')[0]} / {condition}")
    for number, command in enumerate(COMMANDS)
    for step, condition in enumerate(CONDITIONS)
    if (number + step) % len(CONDITIONS) in (0, 4)
]


@pytest.mark.parametrize(("command", "condition"), PAIRS)
def test_a_command_ends_as_documented(
    fresh: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: str,
    condition: str,
) -> None:
    given = CONDITIONS[condition]
    if given.is_full and not FULL.exists():
        pytest.skip("this system has no /dev/full")
    for name, value in given.environment.items():
        monkeypatch.setenv(name, value)
    for name in given.unset:
        monkeypatch.delenv(name, raising=False)
    if given.has_no_temporary:
        monkeypatch.setattr(tempfile, "_get_default_tempdir", _no_temporary)
        monkeypatch.setattr(tempfile, "tempdir", None)
    if given.has_no_working_folder:
        monkeypatch.chdir(tmp_path)
        tmp_path.rmdir()
    code, _, err = run(command, fresh, given)
    assert code in (0, 2, 3, 4, 6)
    assert "Traceback" not in err
    if code in (2, 3):
        assert [line[:7] for line in err.splitlines()[-3:]] == ["error: ", "   at: ", "   do: "]
    litter = [p for p in Path(fresh["new"]).parent.rglob("*") if p.name.endswith(".tmp")]
    assert not litter


@pytest.mark.parametrize(
    "command",
    [
        f"bench {NOBODY} --html {{new}}/page.html",
        f"bench conformance {NOBODY} --junit {{new}}/tests.xml",
        "bench hw --out {new}/host.yaml",
        "smoke {tiny} --junit {new}/tests.xml",
    ],
)
def test_what_cannot_be_written_is_told_before_hours_of_measuring(
    fresh: dict[str, str], command: str
) -> None:
    code, out, err = run(command, fresh, Condition())
    assert (code, out) == (3, "")
    assert err.startswith("error: cannot write ")


@pytest.mark.parametrize("command", ["serve {tiny} --engine embedded", "smoke {tiny}"])
def test_torch_without_a_working_folder_is_refused(
    fresh: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    if not all(map(find_spec, ENGINE)):
        pytest.skip("the extra engine is not installed")
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    code, out, err = run(command, fresh, Condition())
    assert (code, out) == (3, "")
    assert err.startswith("error: the working folder is gone")


def _no_temporary() -> str:
    raise FileNotFoundError(2, "No usable temporary directory found in ['/tmp']")
