"""What is shipped: the files of the wheel and of the sources, and that the wheel runs."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]
Built = tuple[Path, Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The wheel and the archive, built as a release is, but from the tools that are here."""
    out = tmp_path_factory.mktemp("dist")
    command = (sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return out / f"k31ctl-{VERSION}-py3-none-any.whl", out / f"k31ctl-{VERSION}.tar.gz"


def under(folder: str, *suffixes: str) -> set[str]:
    files = (ROOT / folder).rglob("*")
    return {str(file.relative_to(ROOT)) for file in files if file.suffix in suffixes}


def test_the_wheel_holds_the_package_its_profiles_and_licences_and_no_more(built: Built) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        names = set(wheel.namelist())
    info = f"k31ctl-{VERSION}.dist-info/"
    shipped = {name for name in names if not name.startswith(info)}
    code = under("k31ctl", ".py", ".json", ".js", ".css", ".txt") | {"k31ctl/py.typed"}
    profiles = {
        name.replace("profiles/", "k31ctl/_profiles/", 1)
        for name in under("profiles", ".yaml", ".json")
    }
    assert shipped == code | profiles
    licences = {f"{info}licenses/{name}" for name in ("LICENSE", "THIRD_PARTY.md")}
    assert licences <= names


def test_the_archive_holds_all_that_a_packager_builds_and_tests_with(built: Built) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    kept = under("k31ctl", ".py") | under("profiles", ".yaml") | under("tests", ".py")
    assert kept | under("docs", ".md", ".py") | under("benchmarks", ".py") <= names
    assert {"pyproject.toml", "LICENSE", "THIRD_PARTY.md", "README.md", "Makefile"} <= names
    assert not [name for name in names if re.search(r"__pycache__|\.(pyc|so|whl)$|_cache/", name)]


def test_the_wheel_runs_outside_of_the_checkout(built: Built, tmp_path: Path) -> None:
    with zipfile.ZipFile(built[0]) as wheel:
        wheel.extractall(tmp_path / "site")
    code = (
        "import k31ctl, sys; from k31ctl.cli.main import main\n"
        "assert 'site/k31ctl' in k31ctl.__file__, k31ctl.__file__\n"
        "assert k31ctl.plan('kimi-k3').fits\n"
        "main(['lint', '--json', '--', 'vllm', 'serve', 'moonshotai/Kimi-K3', '-tp', '8',"
        " '--trust-remote-code', '--tool-call-parser', 'kimi_k3', '--reasoning-parser', 'kimi_k3',"
        " '--enable-auto-tool-choice'])\n"
        "main(['tiny', 'tiny']); main(['profiles', 'check', '--json'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert '"findings": []' in done.stdout
    assert (tmp_path / "tiny" / "config.json").exists()


def test_every_dependency_has_its_licence_told() -> None:
    text = (ROOT / "THIRD_PARTY.md").read_text().lower().replace("-", "_")
    extras = PROJECT["optional-dependencies"].values()
    needed = [*PROJECT["dependencies"], *(each for extra in extras for each in extra)]
    names = {re.split(r"[\[<>=;~! ]", each)[0].lower().replace("-", "_") for each in needed}
    assert len(names) > 30
    assert [name for name in sorted(names) if not re.search(rf"\b{name}\b", text)] == []
