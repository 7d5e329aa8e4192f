"""Every reader of outside data, with real documents to damage and what reads them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from k31ctl.catalog.dataset import read_dataset
from k31ctl.catalog.trace import read_trace
from k31ctl.fetch.manifest import MANIFEST_NAME
from k31ctl.fetch.partial_marker import MARKER_NAME
from k31ctl.fetch.proven import JOURNAL_NAME
from tests.fetch.tiny_checkpoint import INDEX, SHARDS, tiny_config
from tests.fuzz.damaged_files import (
    Files,
    documents,
    either,
    image_files,
    launches,
    lines,
    shards,
    texts,
    within,
    yaml_launches,
)
from tests.fuzz.hostile import spoilt
from tests.fuzz.readers import (
    amd,
    chat_body,
    checkpoint,
    engine_index,
    hub_answer,
    image,
    lint,
    log,
    metrics,
    nvidia,
    nvml,
    program,
    refused,
    state,
    stream,
    tokenizer,
    written,
)
from tests.fuzz.real_documents import (
    AZURE,
    CALIBRATION,
    CHAT,
    CONFIGS,
    DATASET,
    DELTAS,
    FETCHED,
    HUB,
    JOURNAL,
    LOG,
    MANIFEST,
    MARKER,
    MARKS,
    MESSAGES,
    METRICS,
    MOONCAKE,
    NVML,
    OWN_MANIFEST,
    OWN_TRACE,
    PROFILES,
    ROWS,
    SNAPSHOT,
    index_document,
    plan_document,
    record,
    small_tokenizer,
)
from tests.host.machine import query, recorded

Read = Callable[[Path, bytes], object]


@dataclass(frozen=True)
class Parser:
    """What may be damaged, and what reads it; a whole command is tried less often in every run."""

    files: Files
    read: Read
    is_slow: bool = False


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


def function(
    name: str, read: Callable[[Path], object], files: Files, *, is_slow: bool = False
) -> Parser:
    """A file that a function is given."""

    def called(folder: Path, content: bytes) -> None:
        refused(read, written(folder / name, content))

    return Parser(files, called, is_slow)


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
        "yaml launch by structure": function("l.yaml", lint, yaml_launches(), is_slow=True),
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
        "measurements": command("m.yaml", "validate", "{}", files=documents([{"rows": ROWS}])),
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
            either(documents([small_tokenizer()]), texts([b"YQ== 0\nYg== 1\n"])),
            tokenizer,
            is_slow=True,
        ),
        "engine's index": Parser(documents([index_document()]), engine_index, is_slow=True),
        "image": Parser(image_files, image),
        "AMD's tool": Parser(documents([json.loads(recorded("amd-smi-static.json"))]), amd),
        "NVIDIA's tool": Parser(
            texts([query(count=1).encode(), recorded("nvidia-smi-topo-m.txt").encode()]), nvidia
        ),
        "NVML": Parser(documents([NVML]), nvml),
        "plan for serve": command("p.json", "serve", "--plan", "{}", "--as", "shell", files=plan),
    }
