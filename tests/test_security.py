"""What the program never does, seen in its source."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "k31ctl").rglob("*.py"))
NEVER_CALLED = frozenset(
    (
        *("os.system", "os.popen", "tempfile.mktemp", "eval", "compile", "__import__"),
        *("torch.load", "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"),
        *("yaml.Loader", "yaml.UnsafeLoader", "yaml.FullLoader", "ssl._create_unverified_context"),
        *("numpy.load", "np.load", "runpy.run_path"),
    )
)
NEVER_IMPORTED = frozenset(
    ("pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "telnetlib")
)
NEVER_PASSED = frozenset(
    (("shell", True), ("trust_remote_code", True), ("verify", False), ("weights_only", False))
)
# The constructor of a value is written from the names of its fields, which stand in our source.
WORDS = {word.split(".")[-1] for word in (*NEVER_CALLED, *NEVER_IMPORTED)}
WORDS |= {word for word, _ in NEVER_PASSED} | {"exec", "chmod", "mkdir"}
ANY = re.compile(rf"\b({'|'.join(sorted(WORDS - {'load', 'compile'}))})\b|\bload\(|[^.]\bcompile\(")
EXECUTES = frozenset((ROOT / "k31ctl" / "values.py",))
OF_ALL = 0o002


def nodes() -> Iterator[tuple[Path, ast.AST]]:
    for path in SOURCES:
        text = path.read_text()
        if ANY.search(text):  # parsing all of them takes long
            yield from ((path, node) for node in ast.walk(ast.parse(text)))


def said(path: Path, node: ast.AST) -> Iterator[str]:
    """What a node does that nothing here may."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (m for m in modules if m.partition(".")[0] in NEVER_IMPORTED)
    if isinstance(node, ast.Call):
        name = dotted(node.func)
        if name in NEVER_CALLED or (name == "exec" and path not in EXECUTES):
            yield name
        passed = {(k.arg or "", getattr(k.value, "value", None)) for k in node.keywords}
        yield from (f"{argument}={value}" for argument, value in passed & NEVER_PASSED)
        modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
        if name.endswith(("chmod", "mkdir")):
            yield from (f"{name} {n:o}" for n in modes if type(n) is int and n & OF_ALL)


def dotted(node: ast.AST) -> str:
    """A name with what it is taken from, as far as that is a name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_no_source_runs_a_shell_unpickles_trusts_remote_code_or_opens_files_to_all() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {what}"
        for path, node in nodes()
        for what in said(path, node)
    ]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "from pickle import loads", "os.system('x')", "run(x, shell=True)",
        "eval(x)", "exec(x)", "load(x, trust_remote_code=True)", "get(x, verify=False)",
        "path.chmod(0o777)", "torch.load(f)", "yaml.load(x)",
    ],
)  # fmt: skip
def test_each_of_them_would_be_seen(text: str) -> None:
    assert [what for node in ast.walk(ast.parse(text)) for what in said(ROOT, node)]


def test_every_dependency_says_the_oldest_version_that_it_may_be() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    named = [*project["dependencies"], *(each for extra in extras for each in extra)]
    assert not [each for each in named if not (">=" in each or "==" in each)]


def test_the_licence_of_every_dependency_of_the_program_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    shipped = [
        *project["dependencies"],
        *(e for n in ("engine", "http2", "measure", "kernels", "objectstore") for e in extras[n]),
    ]
    names = [each.partition(">")[0].partition("=")[0].strip() for each in shipped]
    listed = (ROOT / "THIRD_PARTY.md").read_text().lower()
    assert not [name for name in names if name.lower() not in listed]
