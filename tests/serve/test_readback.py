"""A running server read back over HTTP and held against a launch."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from k31ctl.catalog.hardware import load_node
from k31ctl.core.rules import Finding
from k31ctl.errors import EndpointError, UsageError
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import lint_files
from k31ctl.serve.readback import MOST_BYTES, running_server
from tests.core.catalogs import STORE
from tests.core.rule_cases import QUERY, S, T, V

VLLM = V + " --kv-cache-dtype fp8 --gpu-memory-utilization 0.95 --max-model-len 131072" + QUERY
INFO = (
    "# TYPE vllm:cache_config_info gauge\n"
    'vllm:cache_config_info{block_size="1536",cache_dtype="fp8",enable_prefix_caching="False",'
    'engine="0",gpu_memory_utilization="0.95",num_gpu_blocks="BLOCKS"} 1.0\n'
)
MODELS = {"data": [{"id": "moonshotai/Kimi-K3", "max_model_len": 131072}]}


@contextmanager
def server(pages: dict[str, str]) -> Iterator[str]:
    """A server on the loopback that has these pages and no others."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path, "").encode()
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def vllm_pages(**changes: Any) -> dict[str, str]:
    model = {**MODELS["data"][0], **changes.get("model", {})}
    info = INFO.replace("BLOCKS", str(changes.get("blocks", PLANNED)))
    return {
        "/version": json.dumps({"version": changes.get("version", "0.33.0")}),
        "/v1/models": json.dumps({"data": [model]}),
        "/metrics": info.replace('"0.95"', f'"{changes.get("fraction", 0.95)}"'),
    }


def found(command: str, url: str) -> list[Finding]:
    asked = Asked(
        hardware="8x-b300", node=load_node(STORE, "8x-b300"), readback=url, engine="", nodes=1
    )
    (file,) = lint_files(STORE, shlex.split(command), asked)
    return [each for each in file.findings if each.id.startswith("readback")]


PLANNED = 2_088  # 44,354,695,975 bytes of pool in blocks of 21,233,664


def test_a_server_that_is_the_launch_is_no_finding() -> None:
    with server(vllm_pages()) as url:
        assert found(VLLM, url) == []


@pytest.mark.parametrize(
    ("changes", "rule", "says"),
    [
        ({"version": "0.34.0"}, "readback-version", "0.34.0 is running"),
        ({"fraction": 0.9}, "readback-setting", "0.9 in the running server, and 0.95"),
        ({"model": {"id": "moonshotai/Kimi-K2"}}, "readback-model", "Kimi-K2 is served"),
        ({"model": {"max_model_len": 8192}}, "readback-setting", "8192 in the running"),
        ({"blocks": PLANNED // 2}, "readback-capacity", "-50%"),
    ],
)
def test_what_runs_otherwise_is_a_finding(changes: dict[str, Any], rule: str, says: str) -> None:
    with server(vllm_pages(**changes)) as url:
        (finding,) = found(VLLM, url)
    assert (finding.id, says in finding.message) == (rule, True), finding
    assert finding.source.startswith(url)


def test_sglang_tells_its_arguments() -> None:
    info = {
        "version": "0.5.23",
        "model_path": "moonshotai/Kimi-K3",
        "tp_size": 8,
        "mem_fraction_static": 0.8,
        "trust_remote_code": True,
        "dp_size": None,
    }
    with server({"/server_info": json.dumps(info)}) as url:
        (finding,) = found(S + " --mem-fraction-static 0.85", url)
    assert finding.id == "readback-setting"
    assert "--mem-fraction-static is 0.8" in finding.message


def test_tokenspeed_tells_its_model() -> None:
    with server({"/get_model_info": json.dumps({"model_path": "other/Model"})}) as url:
        (finding,) = found(T, url)
    assert finding.id == "readback-model"


@pytest.mark.parametrize(
    "pages",
    [
        {},
        {"/version": "[]"},
        {"/version": "{}", "/v1/models": "{}", "/metrics": "nothing"},
        {"/version": "[" * 100_000},
        {"/version": " " * (MOST_BYTES + 1)},
    ],
)
def test_a_server_that_breaks_the_contract_is_an_endpoint_error(pages: dict[str, str]) -> None:
    with server(pages) as url, pytest.raises(EndpointError):
        running_server("vllm", url)


def test_nobody_there_is_an_endpoint_error_and_no_address_a_mistake() -> None:
    with server({}) as url:
        pass
    with pytest.raises(EndpointError, match="no answer"):
        running_server("vllm", url)
    with pytest.raises(UsageError):
        running_server("vllm", "localhost:8000")
