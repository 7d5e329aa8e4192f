"""Documents as the program, an engine, a hub or a machine really writes them."""

import contextlib
import io
import json
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from PIL import Image

from k31ctl.cli.main import main
from k31ctl.engine.tokenizer import CONFIG_FILE
from k31ctl.fetch.partial_marker import MARKER_SCHEMA
from k31ctl.fetch.seal import sealed
from tests.bench.runs import finished
from tests.bench.sse_server import answer, running_server
from tests.engine.small_tokenizer import write_small_tokenizer
from tests.fetch.tiny_checkpoint import INDEX, SHARDS, write_tiny

HERE: Final = Path(__file__).parents[1]


PROFILES: Final = HERE.parent / "profiles"


LAUNCHES: Final = HERE / "serve" / "lint_cases"


def answered(*arguments: object) -> str:
    """What a command prints of a real file."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main([str(argument) for argument in arguments])
    return out.getvalue()


@cache
def plan_document() -> Any:
    load = ("--prompt-tokens", 8000, "--output-tokens", 700, "--concurrency", 24)
    return json.loads(answered("plan", "kimi-k3", "--on", "8x-b300", *load, "--json"))


@cache
def record() -> Mapping[str, bytes]:
    """The files of a measurement's record, with the plan that it was held against."""
    with tempfile.TemporaryDirectory() as folder, running_server(answer) as server:
        finished(server.url, num_requests=4, repeat=2, folder=Path(folder) / "run")
        found = {place.name: place.read_bytes() for place in (Path(folder) / "run").iterdir()}
    run = json.loads(found["run.json"]) | {"plan": plan_document()}
    for stage in run["stages"]:
        stage["client"] |= {"is_valid": True, "reasons": []}
    return found | {"run.json": json.dumps(run).encode()}


def config(name: str) -> Any:
    return json.loads((HERE / "data" / f"{name}.config.json").read_text())


CONFIGS: Final = tuple(config(n) for n in ("kimi-k3", "kimi-k2.5", "deepseek-v3", "qwen3-0.6b"))


MOONCAKE: Final = [{"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [1]}]


OWN_TRACE: Final = b"arrival,prompt,output,cached\n0,10,20,0\n1.5,2000,100,500\n"


AZURE: Final = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
    b"2023-11-16 18:17:04.0319600,3180,8\n"
)


DATASET: Final = [
    {"messages": [{"role": "user", "content": "why?"}], "output_tokens": 5},
    {"prompt": "why?", "max_tokens": 3},
]


DELTAS: Final = [
    {
        "id": "x",
        "choices": [
            {
                "index": 0,
                "delta": {
                    "content": "a", "reasoning_content": "b",
                    "tool_calls": [
                        {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
                    ],
                },
                "finish_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": 3, "completion_tokens": 4,
            "completion_tokens_details": {"reasoning_tokens": 1},
            "prompt_tokens_details": {"cached_tokens": 1},
        },
    }
]  # fmt: skip


METRICS: Final = (
    b"# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n"
    b'vllm:num_requests_running{engine="0",model_name="k"} 3.0\n'
    b'vllm:kv_cache_usage_perc{engine="0"} 0.5\nvllm:prompt_tokens_total 7\n'
    b"vllm:time_to_first_token_seconds_sum 1.5\nvllm:time_to_first_token_seconds_count 3\n"
    b'vllm:time_to_first_token_seconds_bucket{le="+Inf"} 3\n'
    b"vllm:prefix_cache_hits_total 4\nvllm:prefix_cache_queries_total 9\n"
)


HUB: Final = {
    "sha": "0123456789abcdef0123456789abcdef01234567",
    "gated": False,
    "cardData": {"license": "other", "license_name": "Example"},
    "siblings": [
        {"rfilename": "config.json", "size": 5, "blobId": "0" * 40},
        {"rfilename": "a/m.safetensors", "size": 9, "lfs": {"sha256": "0" * 64, "size": 9}},
    ],
}


LOG: Final = (
    b"INFO GPU KV cache size: 3,249,215 tokens\nmax_total_num_tokens=12\n"
    b"error: unrecognized arguments: --x\nApplication startup complete.\n"
)


CALIBRATION: Final = yaml.safe_load((PROFILES / "speed" / "kimi.yaml").read_text())


ROWS: Final = yaml.safe_load((PROFILES / "measurements" / "kimi-k3.yaml").read_text())["rows"][:3]


MANIFEST: Final = {
    "schema": "k31ctl/manifest/v1",
    "files": [{"path": "config.json", "size_bytes": 5, "sha256": "0" * 64}],
}


OWN_MANIFEST: Final = MANIFEST | {
    "repo": "o/n",
    "endpoint": "https://hub",
    "commit": "0" * 40,
    "revision": "main",
    "gated": None,
    "licence": "mit",
    "licence_files": ["LICENSE"],
    "licence_texts": [{"path": "LICENSE", "text": "you may", "sha256": "0" * 64}],
    "proven_against": {"kind": "hub", "source": "s", "reason": "r"},
    "made_at": "2026-01-01T00:00:00+00:00",
    "made_by": "k31ctl 0.1.0",
    "is_complete": True,
}


MARKER: Final = {
    "schema": MARKER_SCHEMA,
    "source": "o/n",
    "commit": "0" * 40,
    "selection": "--layers 0",
}


JOURNAL: Final = {
    "schema": "k31ctl/verify-journal/v1",
    "files": {SHARDS[0]: [1, 2, 3, 4, "0" * 64]},
    "values": {SHARDS[0]: [[1, 2, 3, 4, "1"], 1, 2]},
}


SNAPSHOT: Final = {
    "schema": "k31ctl/snapshot/v1",
    "repo": "o/n",
    "endpoint": "https://hub",
    "commit": "0" * 40,
    "revision": "main",
    "gated": None,
    "licence": None,
    "files": [{"path": "a", "size_bytes": 5, "sha256": None, "blob_id": "0" * 40}],
}


FETCHED: Final = {
    "repo": "o/n",
    "rate_bytes_per_s": 1e6,
    "files": {
        "a": sealed(
            "a",
            {
                "content_id": "x",
                "sha256": "0" * 64,
                "size_bytes": 5,
                "mtime_ns": 1,
                "synced": True,
                "boot_id": "b",
            },
        )
    },
}


MARKS: Final = {"schema": "k31ctl/marks/v1", "path": "a", "sha256": "0" * 64, "marks": ["0" * 64]}


CHAT: Final = {
    "model": "tiny",
    "stream": False,
    "max_tokens": 5,
    "temperature": 0.5,
    "top_p": 0.9,
    "seed": 1,
    "stop": ["x"],
    "logprobs": True,
    "top_logprobs": 2,
    "reasoning_effort": "high",
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "response_format": {"type": "json_object"},
    "messages": [
        {"role": "system", "content": "s"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "t"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
        {
            "role": "assistant",
            "content": "a",
            "reasoning_content": "r",
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ],
}


MESSAGES: Final = {
    "model": "tiny",
    "prompt": "why?",
    "max_tokens": 3,
    "echo": False,
    "ignore_eos": True,
}


NVML: Final = {
    "driver": "580.1",
    "gpus": [
        {
            "name": "B300",
            "bus_id": "00000000:01:00.0",
            "memory_bytes": 5,
            "used_bytes": 1,
            "persistence": True,
            "mig": False,
            "ecc_on": True,
            "ecc_uncorrected": 0,
            "processes": [[1, 5]],
        }
    ],
}


@cache
def shard() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write_tiny(Path(folder) / "c")
        return (Path(folder) / "c" / SHARDS[0]).read_bytes()


@cache
def index_document() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        write_tiny(Path(folder) / "c")
        return json.loads((Path(folder) / "c" / INDEX).read_text())


@cache
def small_tokenizer() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        write_small_tokenizer(Path(folder))
        return json.loads((Path(folder) / CONFIG_FILE).read_text())


@cache
def pictures() -> tuple[bytes, ...]:
    found = []
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"):
        file = io.BytesIO()
        Image.effect_noise((40, 30), 9).convert("RGB").save(file, kind)
        found.append(file.getvalue())
    return tuple(found)
