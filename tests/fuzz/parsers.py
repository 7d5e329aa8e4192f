"""Every reader of outside data, with real documents to damage and what reads them."""

import base64
import contextlib
import hashlib
import io
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from PIL import Image

from k31ctl.bench.deltas import DeltaReader
from k31ctl.bench.gauges import read_sample, summed_up
from k31ctl.bench.prometheus import parse_metrics
from k31ctl.bench.server_metrics import between
from k31ctl.bench.sse import EventSplitter
from k31ctl.bench.trouble import TroubleError
from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.dataset import read_dataset
from k31ctl.catalog.trace import read_trace
from k31ctl.cli.main import main
from k31ctl.core.chat_format.messages import ImagePart
from k31ctl.core.server_log import read_line
from k31ctl.engine.checkpoint import Checkpoint
from k31ctl.engine.images import prepared_image, sized_image
from k31ctl.engine.service.connection import json_object
from k31ctl.engine.service.faults import ApiError
from k31ctl.engine.service.limits import Limits
from k31ctl.engine.service.tasks import ServedModel, chat_task, completion_task, prompt_ids
from k31ctl.engine.tokenizer import CONFIG_FILE, VOCABULARY_FILE, load_tokenizer
from k31ctl.errors import K31Error
from k31ctl.fetch.hub import HubFile
from k31ctl.fetch.hub_metadata import Question, _snapshot
from k31ctl.fetch.journal import Journal
from k31ctl.fetch.kept_origins import kept_origins
from k31ctl.fetch.listing import read_listing
from k31ctl.fetch.manifest import MANIFEST_NAME
from k31ctl.fetch.marks import noted_marks
from k31ctl.fetch.partial_marker import MARKER_NAME, MARKER_SCHEMA
from k31ctl.fetch.proven import JOURNAL_NAME
from k31ctl.fetch.seal import sealed
from k31ctl.fetch.trouble import TransferError
from k31ctl.host.amd import parse_amd_smi
from k31ctl.host.nvidia import parse_nvml, parse_query
from k31ctl.host.nvidia_links import parse_matrix, parse_nvlink
from k31ctl.host.probe import Missed
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import lint_files
from tests.bench.runs import finished
from tests.bench.sse_server import answer, running_server
from tests.engine.scripted import VISION, small_model
from tests.engine.small_tokenizer import write_small_tokenizer
from tests.fetch.tiny_checkpoint import INDEX, SHARDS, tiny_config, write_tiny
from tests.fuzz.hostile import Choose, damaged_document, damaged_text, one, spoilt
from tests.host.machine import query, recorded

HERE: Final = Path(__file__).parents[1]
PROFILES: Final = HERE.parent / "profiles"
LAUNCHES: Final = HERE / "serve" / "lint_cases"
# What a file may lead to: an answer, an input that is none, a gate or a refusal, unproven data.
ANSWERS: Final = frozenset((0, 3, 4, 5))
Read = Callable[[Path, bytes], object]
Files = Callable[[Choose], bytes]


@dataclass(frozen=True)
class Parser:
    """What may be damaged, and what reads it; a whole command is tried less often in every run."""

    files: Files
    read: Read
    is_slow: bool = False


def program(*arguments: object) -> None:
    """Run a command in this process; it may answer, or fail in three lines."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as stop:
            assert stop.code in ANSWERS, (stop.code, err.getvalue())
            assert stop.code in (0, 4, 5) or err.getvalue().count("\n") == 3, err.getvalue()
            assert stop.code == 0 or err.getvalue() or out.getvalue()


def answered(*arguments: object) -> str:
    """What a command prints of a real file."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main([str(argument) for argument in arguments])
    return out.getvalue()


def documents(seeds: Sequence[Any]) -> Files:
    """Damaged documents."""
    return lambda choose: damaged_document(choose, seeds)


def texts(seeds: Sequence[bytes]) -> Files:
    """Damaged texts."""
    return lambda choose: damaged_text(choose, seeds)


def either(*kinds: Files) -> Files:
    """Files of one of these kinds."""
    return lambda choose: kinds[choose(len(kinds))](choose)


def within(files: Files, before: bytes, after: bytes) -> Files:
    """Damaged files with something before and after each."""
    return lambda choose: before + files(choose) + after


def written(place: Path, content: bytes) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


@cache
def store() -> Store:
    return Store(default_folders())


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


def of_record(name: str, *arguments: str, state: str = "complete") -> Parser:
    """A file of a record's folder ``{run}``; ``{other}`` is one that is as it was written."""
    run = json.loads(record()["run.json"]) | {"state": state}
    rows = [json.loads(row) for row in record()["requests.jsonl"].splitlines()]
    if state == "running":
        run["stages"] = []
    kinds = {
        "run.json": documents([run]),
        "requests.jsonl": lines(rows),
        "gaps-0.f32": lambda choose: spoilt(choose, record().get("gaps-0.f32", b"")),
        "series-0.json": documents([json.loads(record()["series-0.json"])]),
    }

    def read(folder: Path, content: bytes) -> None:
        for each, whole in record().items():
            written(folder / "other" / each, whole)
            written(folder / "run" / each, whole)
        written(folder / "run" / "run.json", json.dumps(run).encode())
        written(folder / "run" / name, content)
        places = {"run": folder / "run", "other": folder / "other", "html": folder / "page.html"}
        program(*(argument.format(**places) for argument in arguments))

    return Parser(kinds[name], read, is_slow=True)


def profile(kind: str, name: str, *command: str) -> Parser:
    """A profile of ours, which a folder of ``--profiles`` puts in place of it."""
    text = (PROFILES / kind / f"{name}.yaml").read_bytes()

    def read(folder: Path, content: bytes) -> None:
        written(folder / kind / f"{name}.yaml", content)
        program(*command, "--profiles", folder)

    return Parser(either(documents([yaml.safe_load(text)]), texts([text])), read, is_slow=True)


def command(
    name: str, *arguments: str, files: Files, beside: Mapping[str, bytes] | None = None
) -> Parser:
    """A file that a command is given; ``{}`` stands for it, ``{dir}`` for its folder.

    ``beside`` are the files of a record in the folder ``run``.
    """

    def read(folder: Path, content: bytes) -> None:
        for each, whole in (beside or {}).items():
            written(folder / "run" / each, whole)
        place = written(folder / name, content)
        program(*(a.replace("{dir}", str(folder)).replace("{}", str(place)) for a in arguments))

    return Parser(files, read, is_slow=True)


def function(name: str, read: Callable[[Path], object], files: Files) -> Parser:
    """A file that a function is given."""
    return Parser(files, lambda folder, content: refused(read, written(folder / name, content)))


def refused(read: Callable[..., object], *arguments: object) -> None:
    """Call a reader, which may refuse with the three parts of a failure."""
    with contextlib.suppress(K31Error):
        read(*arguments)


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


def lines(rows: list[Any]) -> Files:
    """JSON lines, of which one is damaged."""
    whole = b"\n".join(json.dumps(row).encode() for row in rows)
    return either(within(documents(rows), whole + b"\n", b"\n"), texts([whole]))


def launches(*endings: str) -> Files:
    return texts([p.read_bytes() for p in sorted(LAUNCHES.iterdir()) if p.name.endswith(endings)])


def yaml_launches() -> Files:
    found = (list(yaml.safe_load_all(p.read_text())) for p in sorted(LAUNCHES.glob("*.yaml")))
    return documents([each[0] for each in found if len(each) == 1])


def lint(place: Path) -> None:
    for each in lint_files(
        store(),
        [str(place)],
        Asked(engine="", hardware="", node=None, nodes=0, model="", readback=""),
    ):
        _ = each.findings, each.notes, each.corrected


def stream(_folder: Path, content: bytes) -> None:
    """The events of a stream, and what each means for a measurement."""
    splitter, reader = EventSplitter(), DeltaReader(keeps_text=True)
    with contextlib.suppress(TroubleError):
        for start in range(0, len(content), 701):
            for event in splitter.feed(content[start : start + 701]):
                reader.read(event)
        for event in splitter.finish():
            reader.read(event)


def metrics(_folder: Path, content: bytes) -> None:
    sample = read_sample(content, at_s=1.0)
    summed_up([sample] if sample else [])
    between({}, parse_metrics(content.decode("utf-8", "replace")))


def log(_folder: Path, content: bytes) -> None:
    for number, line in enumerate(content.decode("utf-8", "replace").split("\n"), 1):
        read_line(line, number=number)


def hub_answer(_folder: Path, content: bytes) -> None:
    question = Question(repo="o/n", revision="main", endpoint="http://hub", token=None)
    with contextlib.suppress(ValueError, RecursionError, TransferError):
        refused(_snapshot, json.loads(content), question)


@cache
def checkpoint(folder: Path) -> None:
    write_tiny(folder / "checkpoint")


def of_checkpoint(name: str, *commands: str, files: Files) -> Parser:
    """A file of a checkpoint's folder, which is right again afterwards."""

    def read(folder: Path, content: bytes) -> None:
        checkpoint(folder)
        place = folder / "checkpoint" / name
        before = place.read_bytes() if place.exists() else None
        written(place, content)
        try:
            for each in commands:
                program(*each.split(), folder / "checkpoint")
        finally:
            place.unlink() if before is None else place.write_bytes(before)

    return Parser(files, read, is_slow=True)


CALIBRATION: Final = yaml.safe_load((PROFILES / "speed" / "kimi.yaml").read_text())
ROWS: Final = yaml.safe_load((PROFILES / "measurements" / "kimi-k3.yaml").read_text())
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


def shards() -> Files:
    """A shard whose header is damaged as a document, whose length is wrong, or whose bytes are."""
    whole = shard()
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]

    def damaged(choose: Choose) -> bytes:
        if not choose(4):
            return spoilt(choose, whole)
        text = damaged_document(choose, [header])
        size = one(choose, [len(text)] * 8 + [0, 2**63, 2**64 - 1, len(text) + 1, 100 << 20])
        return size.to_bytes(8, "little") + text + data

    return damaged


def state(folder: Path, content: bytes) -> None:
    """What an earlier run has left in a folder."""
    for name in ("journal.json", "snapshot.json", "origins.json", "lock"):
        written(folder / ".k31ctl" / name, content)
    file = HubFile(path="a", size_bytes=5, sha256="0" * 64, blob_id=None)
    Journal(folder).proof(file)
    refused(read_listing, folder)
    kept_origins(folder)
    written(folder / ".k31ctl" / "marks" / f"{hashlib.sha256(b'a').hexdigest()[:32]}.json", content)
    noted_marks(folder, "a", "0" * 64)


@cache
def served() -> ServedModel:
    with tempfile.TemporaryDirectory() as folder:
        return small_model(Path(folder))


def chat_body(_folder: Path, content: bytes) -> None:
    for read in (chat_task, completion_task, prompt_ids):
        with contextlib.suppress(ApiError, K31Error):
            read(json_object(content), served(), Limits())


def tokenizer(folder: Path, content: bytes) -> None:
    write_small_tokenizer(folder)
    refused(load_tokenizer, folder)
    name = CONFIG_FILE if content.lstrip()[:1] in b"{[" else VOCABULARY_FILE
    written(folder / name, content)
    refused(load_tokenizer, folder)


@cache
def small_tokenizer() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        write_small_tokenizer(Path(folder))
        return json.loads((Path(folder) / CONFIG_FILE).read_text())


def engine_index(folder: Path, content: bytes) -> None:
    checkpoint(folder)
    written(folder / "checkpoint" / INDEX, content)
    refused(Checkpoint, folder / "checkpoint")


@cache
def pictures() -> tuple[bytes, ...]:
    found = []
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"):
        file = io.BytesIO()
        Image.effect_noise((40, 30), 9).convert("RGB").save(file, kind)
        found.append(file.getvalue())
    return tuple(found)


def image_files(choose: Choose) -> bytes:
    return spoilt(choose, one(choose, pictures()))


def image(_folder: Path, content: bytes) -> None:
    url = "data:image/any;base64," + base64.b64encode(content).decode()
    refused(lambda: prepared_image(sized_image(ImagePart(url=url, where="w"), VISION)))


def told(read: Callable[..., object], *arguments: object) -> None:
    """Call a reader of what a machine's tool prints, which may be missed."""
    with contextlib.suppress(Missed):
        read(*arguments)


def amd(_folder: Path, content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    told(lambda: parse_amd_smi(text, metric=text, process=text))


def nvidia(_folder: Path, content: bytes) -> None:
    text = content.decode("utf-8", "replace")
    for read in (parse_query, parse_matrix, parse_nvlink):
        told(read, text)


def nvml(_folder: Path, content: bytes) -> None:
    told(parse_nvml, content.decode("utf-8", "replace"))


def table() -> Mapping[str, Parser]:
    plan = documents([plan_document()])
    return {
        "config": command("config.json", "plan", "{}", files=documents(CONFIGS)),
        "model profile": profile("models", "deepseek-v3.2", "plan", "deepseek-v3.2"),
        "hardware profile": profile("hardware", "8x-b300", "plan"),
        "engine profile": profile("engines", "vllm-main", "plan"),
        "draft profile": profile(
            "drafts",
            "lithosai-k31-dspark",
            "plan",
            "--draft",
            "lithosai-k31-dspark",
            "--draft-tokens",
            "4",
        ),
        "price profile": profile("prices", "coreweave", "plan"),
        "licence profile": profile("licences", "kimi-k3-license", "licence", "kimi-k3"),
        "trace": function("t.csv", read_trace, either(texts([OWN_TRACE, AZURE]), lines(MOONCAKE))),
        "dataset": function("d.jsonl", read_dataset, lines(DATASET)),
        "shell launch": function("l.sh", lint, launches(".sh", ".sbatch", ".service")),
        "yaml launch": function("l.yaml", lint, launches(".yaml", ".yml")),
        "yaml launch by structure": function("l.yaml", lint, yaml_launches()),
        "stream": Parser(
            either(
                within(documents(DELTAS), b"data: ", b"\n\n"),
                texts([b"data: " + json.dumps(DELTAS[0]).encode() + b"\n\ndata: [DONE]\n\n"]),
            ),
            stream,
        ),
        "metrics": Parser(texts([METRICS]), metrics),
        "server log": Parser(texts([LOG]), log),
        "hub answer": Parser(documents([HUB]), hub_answer),
        "record for diff": of_record("run.json", "bench", "diff", "{run}", "{other}"),
        "record for report": of_record("run.json", "bench", "report", "{run}", "--html", "{html}"),
        "record for compare": of_record("run.json", "bench", "compare", "{run}"),
        "record for calibrate": of_record("run.json", "calibrate", "{run}", "--out", "{html}"),
        "series": of_record("series-0.json", "bench", "report", "{run}", "--html", "{html}"),
        "requests": of_record(
            "requests.jsonl", "bench", "report", "{run}", "--html", "{html}", state="running"
        ),
        "plan for a report": command(
            "p.json",
            "bench",
            "report",
            "{dir}/run",
            "--plan",
            "{}",
            "--html",
            "{dir}/p.html",
            files=plan,
            beside=dict(record()),
        ),
        "plan for compare": command(
            "p.json",
            "bench",
            "compare",
            "{dir}/run",
            "--against",
            "{}",
            files=plan,
            beside=dict(record()),
        ),
        "calibration": command(
            "c.yaml",
            "plan",
            "kimi-k3",
            "--on",
            "8x-b300",
            "--calibration",
            "{}",
            files=either(documents([CALIBRATION]), texts([yaml.safe_dump(CALIBRATION).encode()])),
        ),
        "measurements": command("m.yaml", "validate", "{}", files=documents([ROWS])),
        "index": of_checkpoint(INDEX, "inspect", "verify", files=documents([index_document()])),
        "checkpoint's config": of_checkpoint(
            "config.json", "inspect", "verify", files=documents([tiny_config()])
        ),
        "header": of_checkpoint(SHARDS[0], "inspect", "verify", files=shards()),
        "manifest": of_checkpoint(
            MANIFEST_NAME, "verify", "licence", files=documents([MANIFEST, OWN_MANIFEST])
        ),
        "partial mark": of_checkpoint(MARKER_NAME, "inspect", "verify", files=documents([MARKER])),
        "verify's journal": of_checkpoint(JOURNAL_NAME, "verify", files=documents([JOURNAL])),
        "folder's state": Parser(documents([SNAPSHOT, FETCHED, MARKS]), state),
        "chat body": Parser(documents([CHAT, MESSAGES]), chat_body),
        "tokenizer": Parser(
            either(documents([small_tokenizer()]), texts([b"YQ== 0\nYg== 1\n"])), tokenizer
        ),
        "engine's index": Parser(documents([index_document()]), engine_index),
        "image": Parser(image_files, image),
        "AMD's tool": Parser(documents([json.loads(recorded("amd-smi-static.json"))]), amd),
        "NVIDIA's tool": Parser(
            texts([query(count=1).encode(), recorded("nvidia-smi-topo-m.txt").encode()]), nvidia
        ),
        "NVML": Parser(documents([NVML]), nvml),
        "plan for serve": command("p.json", "serve", "--plan", "{}", "--as", "shell", files=plan),
    }
