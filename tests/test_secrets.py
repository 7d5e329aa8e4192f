"""Keys, passwords and signatures that a user has somewhere: nothing that is shown holds one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from k31ctl.cli.main import main
from k31ctl.shown_address import shown_address
from tests.bench.sse_server import answer, running_server
from tests.fetch.hub_server import HubServer, running_hub

CANARY = "CaNaRy-7Zq0815"
VARIABLES = (
    *("HF_TOKEN", "K31CTL_API_KEY", "K31CTL_PEER_TOKEN", "OPENAI_API_KEY"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
)
SCRIPT = f"""export HF_TOKEN={CANARY}
vllm serve moonshotai/Kimi-K3 -tp 8 --api-key {CANARY}
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --tp 8 --admin-api-key={CANARY}
"""
COMPOSE = f"""services:
  kimi:
    image: vllm/vllm-openai:v0.33.0
    environment:
      VLLM_API_KEY: {CANARY}
    command: ["--model", "moonshotai/Kimi-K3", "--api-key", "{CANARY}", "-tp", "8"]
"""
DEAD = f"http://user:{CANARY}@127.0.0.1:9"


@pytest.fixture(autouse=True)
def _keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    for variable in VARIABLES:
        monkeypatch.setenv(variable, CANARY)
    monkeypatch.setenv("no_proxy", "")
    yield


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """All that a command writes, to its streams and below the working folder."""
    given = {path for path in Path().rglob("*") if path.is_file()}
    with pytest.raises(SystemExit) as stop:
        main(arguments)
        raise SystemExit(0)
    assert stop.value.code in (0, None, 2, 3, 4, 5, 6)
    streams = capsys.readouterr()
    new = {path for path in Path().rglob("*") if path.is_file()} - given
    return streams.out + streams.err + "".join(path.read_text(errors="replace") for path in new)


@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["usual", "debug"])
@pytest.mark.parametrize(
    "command",
    [
        f"bench {DEAD}",
        f"bench http://:{CANARY}@127.0.0.1:9 --out run",
        f"bench http://user:{CANARY}@host:99999",
        f"bench ftp://user:{CANARY}@host",
        f"bench http://127.0.0.1:9?api_key={CANARY}",
        f"bench conformance {DEAD} --junit c.xml",
        f"fetch o/n --to w --endpoint {DEAD}",
        f"fetch o/n --to w --endpoint http://127.0.0.1:9 --from-peer {DEAD}",
        f"inspect o/n --endpoint {DEAD}",
        f"lint --readback {DEAD} -- vllm serve moonshotai/Kimi-K3 -tp 8",
        f"lint --readback http://127.0.0.1:9?key={CANARY} -- vllm serve moonshotai/Kimi-K3 -tp 8",
        "profiles show nothing",
    ],
)
def test_a_failure_does_not_repeat_what_it_was_given(
    capsys: pytest.CaptureFixture[str], command: str, debug: tuple[str, ...]
) -> None:
    assert CANARY not in shown(capsys, *debug, *command.split())


@pytest.mark.parametrize(
    "proxy", ["http://user:{}@127.0.0.1:9", "socks5://u:{}@h", "http://u:{}@h:x"]
)
@pytest.mark.parametrize(
    "command",
    ["bench http://host.example", "fetch o/n --to w --retries 0 --endpoint http://host.example"],
)
def test_the_login_of_a_proxy_is_not_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy.format(CANARY))
    assert CANARY not in shown(capsys, *command.split())


@pytest.mark.parametrize("output", ["text", "json", "sarif", "github", "gitlab"])
@pytest.mark.parametrize(("name", "text"), [("l.sh", SCRIPT), ("c.yaml", COMPOSE)])
def test_lint_shows_no_key_that_a_launch_holds(
    capsys: pytest.CaptureFixture[str], name: str, text: str, output: str
) -> None:
    Path(name).write_text(text)
    said = shown(
        capsys, "lint", name, "--on", "8x-b300", "--format", output, "--markdown", "report.md"
    )
    assert "api-key" in said or "Kimi-K3" in said or "error" in said
    assert CANARY not in said


def test_fix_keeps_the_key_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("l.sh").write_text(SCRIPT)
    with pytest.raises(SystemExit):
        main(["lint", "l.sh", "--on", "8x-b300", "--fix"])
    assert CANARY not in capsys.readouterr().out
    assert Path("l.sh").read_text().count(CANARY) == SCRIPT.count(CANARY)


def test_a_measurement_and_its_files_hold_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    files = ("--out", "run", "--html", "b.html", "--junit", "b.xml", "--markdown", "b.md")
    load = ("--requests", "2", "--prompt-tokens", "8", "--output-tokens", "4")
    with running_server(answer) as server:
        said = shown(capsys, "bench", server.url, *load, *files)
        assert CANARY in str([asked.headers for asked in server.completions()])
    assert '"schema"' in said
    assert CANARY not in said


@pytest.mark.parametrize("target", ["ftp://x/?X-Amz-Signature={}", "http://127.0.0.1:9/?sig={}"])
def test_the_signature_of_a_redirect_is_not_shown(
    capsys: pytest.CaptureFixture[str], target: str
) -> None:
    hub = HubServer(files={"a.safetensors": bytes(100_000), "config.json": b"{}"}, token=CANARY)
    hub.location = lambda _name, _usual: target.format(CANARY)
    with running_hub(hub):
        said = shown(
            capsys, "fetch", hub.repo, "--to", "w", "--endpoint", hub.url, "--retries", "0"
        )
    assert "a.safetensors" in said
    assert CANARY not in said


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("https://user:pw@host:1/v1?key=x#y", "https://host:1/v1"),
        ("user:pw@host", "host"),
        ("https://host/a@b", "https://b"),
        ("?", ""),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(address: str, expected: str) -> None:
    assert shown_address(address) == expected
