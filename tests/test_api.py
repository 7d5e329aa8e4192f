"""The commands as functions: the same answers as the commands, and nothing loaded before."""

import ast
import doctest
import inspect
import json
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import k31ctl
from k31ctl.api import fetching, launching, measuring, plan_request, results
from k31ctl.cli.main import app_with
from k31ctl.cli.main import main as program
from k31ctl.errors import ProfileError, UsageError
from tests.bench.sse_server import HEAD, Asked, Step, answer, running_server
from tests.fetch.hub_server import HubServer, running_hub

ROOT = Path(__file__).parents[1]
NOWHERE = "http://127.0.0.1:1"
# Options with bounds that are of search(), and of serving a folder.
OF_OTHERS = ("max_nodes", "port", "clients")


def said(*arguments: str | Path) -> Any:
    """The result that a command prints as JSON, whatever its exit code."""
    output = StringIO()
    with redirect_stdout(output):
        try:
            end = arguments.index("--") if "--" in arguments else len(arguments)
            program([*map(str, arguments[:end]), "--json", *map(str, arguments[end:])])
        except SystemExit as stop:
            assert stop.code in (0, None, 3, 4, 5), output.getvalue()
    return json.loads(output.getvalue())["result"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api") / "tiny"
    k31ctl.write_tiny(folder, model="kimi-k3")
    (folder / "model-00001-of-00002.safetensors").touch()  # as a cut download leaves it
    return folder


def slowly(asked: Asked) -> Iterator[Step]:
    """Tokens so far apart that what this machine adds is nothing beside it."""
    yield HEAD
    for step in list(answer(asked))[1:]:
        yield 0.03
        yield step


SLURM = tuple(
    [
        "serve",
        "kimi-k3",
        "--engine",
        "sglang",
        "--on",
        "8x-b200",
        "--nodes",
        "2",
        "--as",
        "slurm",
        "--hosts",
        "a,b",
    ]
)
LAUNCH = ("vllm", "serve", "moonshotai/Kimi-K3", "-tp", "7")
SAME: dict[str, tuple[tuple[str, ...], Callable[[Path], object]]] = {
    "a plan": (
        ("plan", "kimi-k3", "--nodes", "2", "--kv-dtype", "fp8", "--kv-memory", "40GiB"),
        lambda _: k31ctl.plan("kimi-k3", nodes=2, kv_dtype="fp8", kv_memory=40 << 30),
    ),
    "a table, a load, a price": (
        ("plan", "--context", "8k,128k", "--batch", "1,8", "--price", "4", "--output-tokens", "64"),
        lambda _: k31ctl.plan(context=[8192, 131_072], batch=[1, 8], price=4, output_tokens=64),
    ),
    "a rate, played out": (
        ("plan", "kimi-k3", "--rate", "0.5", "--prompt-tokens", "2k", "--slo", "ttft_p99_s<=9"),
        lambda _: k31ctl.plan("kimi-k3", rate=0.5, prompt_tokens=2048, slo="ttft_p99_s<=9"),
    ),
    "a search": (
        ("plan", "kimi-k3", "--systems", "8x-b300", "--max-nodes", "1", "--batch", "8"),
        lambda _: k31ctl.search("kimi-k3", systems=["8x-b300"], max_nodes=1, batch=[8]),
    ),
    "a launch": (
        tuple(
            [
                "serve",
                "kimi-k3",
                "--engine",
                "sglang",
                "--on",
                "8x-b200",
                "--nodes",
                "2",
                "--as",
                "slurm",
                "--hosts",
                "a,b",
            ]
        ),
        lambda _: k31ctl.launch(
            model="kimi-k3",
            engine="sglang",
            on="8x-b200",
            nodes=2,
            target="slurm",
            hosts=["a", "b"],
        ),
    ),
    "a lint": (
        ("lint", "--on", "8x-b300", "--", *LAUNCH),
        lambda _: k31ctl.lint(LAUNCH, on="8x-b300"),
    ),
    "a damaged checkpoint": (("inspect", "{}"), k31ctl.inspect),
    "what proves it": (
        ("verify", "{}", "--deep", "--again"),
        lambda folder: k31ctl.verify(folder, deep=True, again=True),
    ),
    "a licence": (("licence", "kimi-k3"), lambda _: k31ctl.licence("kimi-k3")),
    "a machine": (
        ("doctor", "--only", "gpu-driver", "--only", "engine-model"),
        lambda _: k31ctl.doctor(only=["gpu-driver", "engine-model"]),
    ),
    "a profile": (("profiles", "show", "8x-b300"), lambda _: k31ctl.profile("8x-b300")),
    "all of a kind": (("profiles", "list", "engines"), lambda _: k31ctl.profiles("engines")),
}


@pytest.mark.parametrize("job", SAME)
def test_a_function_returns_what_its_command_prints(job: str, tiny: Path) -> None:
    arguments, function = SAME[job]
    printed = said(*(str(tiny) if word == "{}" else word for word in arguments))
    returned = k31ctl.result_of(function(tiny))
    for only_of_commands in ("gates", "written"):  # what was asked of the answer, or done with it
        printed.pop(only_of_commands, None)
        returned.pop(only_of_commands, None)
    assert printed == returned


def test_runs_are_measured_held_and_compared_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan.json"
    with plan.open("w") as file, redirect_stdout(file):
        program(["plan", "kimi-k3", "--json"])
    told: list[str] = []
    with running_server(slowly) as server:
        for name in ("before", "after"):
            found = k31ctl.measure(
                server.url,
                concurrency=[1],
                requests=3,
                prompt_tokens=16,
                output_tokens=4,
                out=tmp_path / name,
                on_event=lambda event: told.append(type(event).__name__),
            )
    assert (told[0], told[-1]) == ("Checked", "Finished")
    assert found.stages[0].completed == 3
    before, after = tmp_path / "before", tmp_path / "after"
    one = said("bench", "diff", before, after)
    assert k31ctl.result_of(k31ctl.diff(before, after)) == one
    other = said("bench", "compare", after, "--against", plan)
    assert k31ctl.result_of(k31ctl.compare(after, against=plan)) == other
    assert k31ctl.result_of(found)["sweep"][0]["completed"] == 3
    with pytest.raises(k31ctl.K31Error) as refused:
        k31ctl.calibrate([after], plan=plan)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        program(["calibrate", str(after), "--plan", str(plan), "--out", str(tmp_path / "c.yaml")])
    assert ended.value.code == refused.value.exit_code
    assert capsys.readouterr().err.startswith(f"error: {refused.value.what}\n")


def test_a_download_is_the_same_and_told_on_the_way(tmp_path: Path) -> None:
    files = {"config.json": b"{}", "LICENSE": b"you may", "model.safetensors": bytes(300_000)}
    events: list[str] = []
    with running_hub(HubServer(files=files)) as hub:
        planned = k31ctl.download_plan(hub.repo, tmp_path / "one", endpoint=hub.url)
        assert (planned.bytes_to_get, (tmp_path / "one").exists()) == (300_009, False)
        found = k31ctl.download(
            hub.repo,
            tmp_path / "one",
            endpoint=[hub.url],
            on_event=lambda event: events.append(type(event).__name__),
        )
        printed = said("fetch", hub.repo, "--to", tmp_path / "two", "--endpoint", hub.url)
        (tmp_path / "one" / "LICENSE").write_bytes(b"you must")
        with pytest.raises(k31ctl.UsageError, match="files and tensors"):
            k31ctl.download(hub.repo, tmp_path, include=["*"], layers="0", endpoint=[hub.url])
    assert found.finished.is_proven
    assert (events[0], events[-1], events.count("FileVerified")) == ("Planned", "Finished", 3)
    returned = k31ctl.result_of(found)
    assert returned.keys() == printed.keys()
    for name in ("commit", "files", "file_list", "bytes_total", "bytes_downloaded", "verified"):
        assert returned[name] == printed[name], name
    assert not k31ctl.verify(tmp_path / "one", sizes=True).is_proven
    assert k31ctl.verify(tmp_path / "two", sizes=True).is_proven


def commands() -> Iterator[tuple[Callable[..., object], tuple[Callable[..., object], ...]]]:
    names = (
        "plan serve lint inspect verify licence doctor fetch smoke validate bench conformance "
        "tiny bench_diff bench_compare"
    )
    cli = {name: import_module(f"k31ctl.cli.{name}") for name in names.split()}
    yield cli["plan"].plan, (plan_request.plan_request, k31ctl.plan, k31ctl.search)
    yield cli["serve"].serve, (launching.wish_of, k31ctl.launch)
    yield cli["lint"].lint, (k31ctl.lint,)
    yield cli["inspect"].inspect, (k31ctl.inspect,)
    yield cli["verify"].verify, (k31ctl.verify,)
    yield cli["licence"].licence, (k31ctl.licence,)
    yield cli["tiny"].tiny, (k31ctl.write_tiny,)
    yield cli["doctor"].doctor, (k31ctl.doctor,)
    yield cli["fetch"].fetch, (fetching.fetch_job,)
    yield cli["smoke"].smoke, (k31ctl.smoke_test,)
    yield cli["validate"].validate, (k31ctl.validate,)
    yield cli["bench"].load, (measuring.asked_load,)
    yield cli["conformance"].conformance, (k31ctl.conformance,)
    yield cli["bench_diff"].diff, (k31ctl.diff,)
    yield cli["bench_compare"].compare, (k31ctl.compare,)


def test_a_function_has_the_defaults_of_its_command() -> None:
    num_held = 0
    for command, functions in commands():
        theirs = inspect.signature(command).parameters
        for function in functions:
            for name, parameter in inspect.signature(function).parameters.items():
                if name not in theirs or parameter.default is inspect.Parameter.empty:
                    continue
                own, other = parameter.default, theirs[name].default
                alike = str(own or "") == str(other or "") or own == other
                assert alike, f"{function.__qualname__}({name}={own!r}), the command has {other!r}"
                num_held += 1
    assert num_held > 150


def beyond(*command: str) -> Iterator[tuple[str, float]]:
    """Each option of a command that has bounds, with a number beyond them."""
    found: Any = get_command(app_with((command[0], "lint")))
    for word in command:
        found = found.commands[word]
    for option in found.params:
        for name, step in (("min", -1), ("max", 1)):
            if (end := getattr(option.type, name, None)) is not None:
                yield option.name, end + step


@pytest.mark.parametrize(
    ("command", "given", "function"),
    [
        (("plan",), (), k31ctl.plan),
        (("verify",), ("DIR",), k31ctl.verify),
        (("fetch",), ("o/n", "DIR"), k31ctl.download),
        (("bench", "load"), (NOWHERE,), k31ctl.measure),
    ],
)
def test_a_number_beyond_an_option_s_bounds_is_refused_in_the_command_s_words(
    command: tuple[str, ...],
    given: tuple[str, ...],
    function: Callable[..., object],
    capsys: pytest.CaptureFixture[str],
) -> None:
    numbers = [(name, value) for name, value in beyond(*command) if name not in OF_OTHERS]
    assert len(numbers) >= 5
    for name, value in numbers:
        option = f"--{name.replace('_', '-')}"
        with pytest.raises(SystemExit):
            program([*command, option, str(value)])
        with pytest.raises(k31ctl.UsageError) as refused:
            function(*given, **{name: value})
        assert capsys.readouterr().err.startswith(f"error: {refused.value.what}\n   at: {option}")


def test_the_names_of_the_package_are_those_that_are_typed_and_exist() -> None:
    (typed,) = [
        node
        for node in ast.parse(Path(k31ctl.__file__).read_text()).body
        if isinstance(node, ast.If)
    ]
    names = {a.name for each in typed.body if isinstance(each, ast.ImportFrom) for a in each.names}
    assert names | {"__version__"} == set(k31ctl.__all__) == set(dir(k31ctl))
    assert all(inspect.getdoc(getattr(k31ctl, name)) for name in names)
    with pytest.raises(AttributeError, match="no attribute 'plans'"):
        _ = k31ctl.plans
    with pytest.raises(TypeError, match="no result"):
        k31ctl.result_of(3)


def test_every_value_s_class_and_maker_exist() -> None:
    for kind, maker in results.MADE_BY.items():
        module, _, name = kind.rpartition(".")
        assert inspect.isclass(getattr(import_module(module), name)), kind
        module, _, name = maker.rpartition(".")
        assert callable(getattr(import_module(f"k31ctl.report.{module}"), name)), maker


def test_the_package_loads_nothing_and_its_functions_no_torch_and_no_console() -> None:
    code = (
        "import sys, k31ctl; assert not [m for m in sys.modules if m.startswith('k31ctl.')]; "
        "[getattr(k31ctl, name) for name in k31ctl.__all__]; k31ctl.plan('kimi-k3'); "
        "assert not {'torch', 'typer', 'rich', 'httpx', 'psutil'} & set(sys.modules), sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("module", ["planning", "launching", "linting", "catalogue", "results"])
def test_the_examples_of_the_functions_are_true(module: str) -> None:
    found = import_module(f"k31ctl.api.{module}")
    names = {name: getattr(k31ctl, name) for name in k31ctl.__all__}
    assert doctest.testmod(found, globs=names).failed == 0


def test_the_page_shows_what_its_python_prints() -> None:
    page = ROOT / "docs" / "api.md"
    renewed = runpy.run_path(str(ROOT / "docs" / "generate_api.py"))["renewed"]
    assert renewed(page.read_text()) == page.read_text()


WRONG: dict[str, tuple[Callable[..., object], tuple[object, ...], dict[str, object]]] = {
    "runs": (k31ctl.calibrate, ([],), {}),
    "context": (k31ctl.plan, (), {"context": "8k"}),
    "batch": (k31ctl.plan, (), {"batch": [float("nan")]}),
    "kv_memory": (k31ctl.plan, (), {"kv_memory": "42GiB"}),
    "cached_fraction": (k31ctl.plan, (), {"cached_fraction": "half"}),
    "image": (k31ctl.plan, (), {"image": (1024,)}),
    "text_only": (k31ctl.launch, (), {"text_only": "yes"}),
    "on": (k31ctl.plan, (), {"on": None}),
    "systems": (k31ctl.search, (), {"systems": []}),
    "--duration": (k31ctl.measure, (NOWHERE,), {"duration": -1}),
    "--concurrency": (k31ctl.measure, (NOWHERE,), {"concurrency": [0]}),
    "rate": (k31ctl.measure, (NOWHERE,), {"rate": []}),
    "folder": (k31ctl.verify, ("",), {}),
    "checkpoint": (k31ctl.inspect, ("",), {}),
    "profiles": (k31ctl.lint, (LAUNCH,), {"profiles": 7}),
    "given": (k31ctl.lint, (7,), {}),
    "to": (k31ctl.download, ("o/n", ""), {}),
    "stall": (k31ctl.download, ("o/n", "x"), {"stall": "20s"}),
    "endpoint": (k31ctl.download_plan, ("o/n", "x"), {"endpoint": 8000}),
    "calibration": (k31ctl.plan, (), {"calibration": 5}),
    "port": (k31ctl.launch, (), {"port": "x"}),
    "seed": (k31ctl.write_tiny, ("z",), {"seed": "a"}),
    "url": (k31ctl.conformance, (5,), {}),
    "before": (k31ctl.diff, (None, None), {}),
    "model_or_repo": (k31ctl.download, (None,), {"to": None}),
    "engine": (k31ctl.doctor, (), {"engine": 5}),
    "name": (k31ctl.profile, (None,), {}),
    "table": (k31ctl.validate, (5,), {}),
    "of": (k31ctl.cold_start, (5,), {}),
    "pools": (k31ctl.disaggregate, (), {"pools": 5}),
    "text": (k31ctl.gate, (None, None), {}),
    "fit": (k31ctl.write_calibration, (5, "x"), {}),
    "given, empty": (k31ctl.lint, ("",), {}),
    "given, none": (k31ctl.lint, ([],), {}),
    "--limit-rate": (k31ctl.download, ("o/n", "x"), {"limit_rate": 0.0}),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_argument_that_cannot_be_is_named(name: str) -> None:
    function, given, options = WRONG[name]
    with pytest.raises(UsageError) as caught:
        function(*given, **options)
    assert caught.value.where == name.partition(",")[0]


def test_one_value_or_path_stands_for_a_list_of_it(tmp_path: Path) -> None:
    assert k31ctl.plan(context=8192, batch=2) == k31ctl.plan(context=[8192], batch=[2])
    (tmp_path / "launch.sh").write_text(" ".join(LAUNCH))
    (found,) = k31ctl.lint(tmp_path / "launch.sh", profiles=())
    assert found.findings == k31ctl.lint([str(tmp_path / "launch.sh")])[0].findings
    with pytest.raises(ProfileError, match="no folder of profiles") as caught:
        k31ctl.plan(profiles=str(tmp_path / "none"))
    assert caught.value.where == str(tmp_path / "none")


@pytest.mark.parametrize("function", ["plan", "search", "launch", "measure", "download"])
def test_an_unknown_keyword_is_told_of_the_function_that_was_called(function: str) -> None:
    called: Callable[..., object] = getattr(k31ctl, function)
    with pytest.raises(TypeError, match=rf"^{function}\(\) got an unexpected .* 'oops'"):
        called(*{"measure": [NOWHERE], "download": ["o/n", "x"]}.get(function, []), oops=1)


def test_parameters_from_what_is_no_file_are_refused() -> None:
    with pytest.raises(ProfileError, match="not a regular file") as caught:
        k31ctl.plan(calibration="/dev/null")
    assert "k31ctl calibrate wrote" in caught.value.remedy
