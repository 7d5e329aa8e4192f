"""The readers of outside data, each called as the program calls it."""

import base64
import contextlib
import hashlib
import io
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from k31ctl.bench.deltas import DeltaReader
from k31ctl.bench.gauges import read_sample, summed_up
from k31ctl.bench.prometheus import parse_metrics
from k31ctl.bench.server_metrics import between
from k31ctl.bench.sse import EventSplitter
from k31ctl.bench.trouble import TroubleError
from k31ctl.catalog import Store, default_folders
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
from k31ctl.fetch.marks import noted_marks
from k31ctl.fetch.trouble import TransferError
from k31ctl.host.amd import parse_amd_smi
from k31ctl.host.nvidia import parse_nvml, parse_query
from k31ctl.host.nvidia_links import parse_matrix, parse_nvlink
from k31ctl.host.probe import Missed
from k31ctl.serve.lint import Asked
from k31ctl.serve.lint_files import lint_files
from tests.engine.scripted import VISION, small_model
from tests.engine.small_tokenizer import write_small_tokenizer
from tests.fetch.tiny_checkpoint import INDEX, write_tiny

# What a file may lead to: an answer, an input that is none, a gate or a refusal, unproven data.
ANSWERS: Final = frozenset((0, 3, 4, 5))


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


def written(place: Path, content: bytes) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)
    return place


@cache
def store() -> Store:
    return Store(default_folders())


def refused(read: Callable[..., object], *arguments: object) -> None:
    """Call a reader, which may refuse with the three parts of a failure."""
    with contextlib.suppress(K31Error):
        read(*arguments)


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


def engine_index(folder: Path, content: bytes) -> None:
    checkpoint(folder)
    written(folder / "checkpoint" / INDEX, content)
    refused(Checkpoint, folder / "checkpoint")


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
