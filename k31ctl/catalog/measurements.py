"""Published measurements, as their tables write them, as trials of the speed model."""

import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final

from k31ctl.catalog.decode import decode
from k31ctl.catalog.engines import load_draft, resolve_engine
from k31ctl.catalog.hardware import load_nodes
from k31ctl.catalog.models import load_model
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Kind, Store, read_text
from k31ctl.catalog.yaml_text import parse_yaml
from k31ctl.core.costing import NO_WISHES
from k31ctl.core.deployment import deployment
from k31ctl.core.hardware import Node
from k31ctl.core.kv_cache import KvFormat, StateDtype
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.measurement import Measurement, Trial
from k31ctl.core.prediction import case_of
from k31ctl.core.request import Parts, PlanRequest
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.core.workload import AskedWorkload, Workload
from k31ctl.errors import K31Error, ProfileError
from k31ctl.units import Bytes
from k31ctl.values import frozen

DEFAULT_ID: Final = "kimi-k3"
_KERNELS: Final = {
    "marlin": "marlin-w4a16",
    "humming": "humming-w4a16",
    "mxfp4xmxfp8": None,
    "nvfp4": None,
}
_ENGINES: Final = ("vllm", "sglang", "tokenspeed", "tensorrt-llm")
_SIZES: Final = re.compile(r"(TP|PP|DP|EP|DCP)\s*([0-9]+)")
_HARDWARE: Final = re.compile(r"(?:([0-9]+)\s*x\s+)?(.+?)(?:\s+class)?(?:\s*\(.*\))?")
# Where a table does not say how long its requests were.
_USUAL_PROMPT: Final = 1024
_USUAL_OUTPUT: Final = 1024
_COOKBOOK_PROMPT: Final = 8192


@frozen
class _Row:
    """A row of measurements: what was run, and what came out; None is not stated."""

    id: str
    src: str
    hw: str
    model: str = "kimi-k3"
    engine: str | None = None
    layout: str | None = None
    moe: str | None = None
    kv: KvFormat | None = None
    spec: str | None = None
    accepted: float | None = None
    isl: int | None = None
    osl: int | None = None
    c: int | None = None
    batch: int | None = None
    context: int | None = None
    url: str = ""
    date: str = ""
    note: str = ""
    left_out: str = ""
    kv_memory: Bytes | None = None
    memory_fraction: float | None = None
    state_ratio: float | None = None
    chunk_tokens: int | None = None
    max_model_len: int | None = None
    most_running: int | None = None
    prefix_caching: bool = True
    out_tok_s: float | None = None
    total_tok_s_per_gpu: float | None = None
    prefill_tok_s_per_gpu: float | None = None
    decode_tok_s_per_gpu: float | None = None
    tok_s_per_user: float | None = None
    tok_s_per_gpu: float | None = None
    tpot_ms: float | None = None
    step_ms: float | None = None
    ttft_ms: float | None = None

    def __post_init__(self) -> None:
        """State what cannot be true of a run, so that a table cannot say it."""
        for name in (*_COUNTS, *QUANTITIES):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0")
        if self.accepted is not None and self.accepted < 1:
            raise ValueError("accepted must be at least 1: the target's own token counts")
        if self.moe is not None and self.moe not in _KERNELS:
            raise ValueError(f"moe must be one of {', '.join(_KERNELS)}")


_COUNTS: Final = (
    "isl",
    "osl",
    "c",
    "batch",
    "context",
    "kv_memory",
    "memory_fraction",
    "state_ratio",
    "chunk_tokens",
    "max_model_len",
    "most_running",
)
QUANTITIES: Final = (
    "out_tok_s",
    "total_tok_s_per_gpu",
    "prefill_tok_s_per_gpu",
    "decode_tok_s_per_gpu",
    "tok_s_per_user",
    "tok_s_per_gpu",
    "tpot_ms",
    "step_ms",
    "ttft_ms",
)


@frozen
class Skipped:
    """A row that is no run of a deployment that the model knows, and why."""

    id: str
    source: str
    why: str


def load_trials(
    store: Store, name: str, speed: SpeedParameters
) -> tuple[tuple[Trial, ...], tuple[Skipped, ...]]:
    """The trials of a packaged table or of a file, and the rows that are none.

    Raises ProfileError for a file that is no table of measurements.
    """
    if name in store.paths(Kind.MEASUREMENTS):
        path = store.paths(Kind.MEASUREMENTS)[name]
    elif Path(name).exists():
        path = Path(name)
    else:
        raise ProfileError(
            f"no table and no file is called {name!r}",
            where=str(Kind.MEASUREMENTS),
            remedy=f"tables are: {', '.join(store.ids(Kind.MEASUREMENTS))}; or give a file",
        )
    return trials_in(store, read_text(path), speed, where=str(path))


def trials_in(
    store: Store, text: str, speed: SpeedParameters, *, where: str
) -> tuple[tuple[Trial, ...], tuple[Skipped, ...]]:
    """The trials of a table's own text."""
    raw = parse_yaml(text, where=where)
    rows = raw.get("rows") if isinstance(raw, dict) else raw
    if not isinstance(rows, list) or not rows:
        raise ProfileError(
            "holds no measurements", where=where, remedy="write a list of rows, each with an id"
        )
    nodes = load_nodes(store)
    trials, skipped = [], []
    for number, each in enumerate(rows, 1):
        place = f"{where}, row {number}"
        if not isinstance(each, Mapping):
            raise ProfileError("not a mapping", where=place, remedy="write id, src, hw and more")
        named = f"{place} ({each.get('id')})"
        why = _no_run(each)
        if why:
            skipped.append(
                Skipped(id=str(each.get("id")), source=str(each.get("src", "")), why=why)
            )
            continue
        row = decode(_Row, dict(each), where=named)
        try:
            trials.append(_trial(store, nodes, row, speed, named))
        except ProfileError:
            raise
        except K31Error as error:
            skipped.append(Skipped(id=row.id, source=row.src, why=error.what))
    if not trials:
        raise ProfileError(
            f"no row is a run to hold the model against; the first: {skipped[0].why}",
            where=where,
            remedy=f"give rows a layout and one of {', '.join(QUANTITIES)}",
        )
    return tuple(trials), tuple(skipped)


def _no_run(row: Mapping[str, Any]) -> str:
    if row.get("layout") is None:
        return "one part or one link, not a run of the model: it went into the priors"
    if not any(row.get(name) is not None for name in QUANTITIES):
        return "states no quantity that the model has"
    return ""


def _trial(
    store: Store, nodes: tuple[Node, ...], row: _Row, speed: SpeedParameters, where: str
) -> Trial:
    sizes = {name.lower(): int(size) for name, size in _SIZES.findall(row.layout or "")}
    if "tp" not in sizes and sizes.get("ep", 1) > 1:
        sizes["tp"] = sizes["ep"]
    node, num_nodes = _node(nodes, row, sizes, where)
    model = load_model(store, row.model.partition(" ")[0])
    engine_name = _engine(row, where)
    engine = resolve_engine(store, engine_name, model)
    draft = None
    if row.spec:
        draft = load_draft(store, _draft_id(store, row.spec, engine_name, model.id, where))
    parts = Parts(model=model, node=node, engine=engine, draft=draft, speed=speed, prices=None)
    built = deployment(parts, _request(row, sizes, num_nodes))
    depth = draft.draft_tokens if draft else 0
    kept = row.accepted or (draft.accepted(depth) if draft else 1.0) or 1.0
    load = _workload(row, built.layout.world)
    length = load.prompt_tokens + load.output_tokens
    running = float(row.most_running or built.pool.max_requests(length))
    if running < 1 or row.c is None:
        # What is stated ran: a batch, or as many as both rates of decoding imply.
        running = float(load.concurrency or 1)
    return Trial(
        measurement=Measurement(
            id=row.id,
            source=row.src,
            hardware=node.id,
            num_nodes=num_nodes,
            engine=engine.id,
            layout=built.layout.text,
            workload=load,
            measured={
                name: float(getattr(row, name))
                for name in QUANTITIES
                if getattr(row, name) is not None
            },
            note=row.note,
            left_out=row.left_out,
        ),
        case=case_of(
            parts,
            built,
            kernel=_KERNELS.get(row.moe or ""),
            draft_tokens=depth,
            tokens_per_step=kept,
        ),
        most_running=running,
    )


def _node(
    nodes: tuple[Node, ...], row: _Row, sizes: Mapping[str, int], where: str
) -> tuple[Node, int]:
    """The smallest profile with this GPU, and how many of it."""
    found = _HARDWARE.fullmatch(row.hw.strip())
    words = found[2].upper().split() if found else []
    able = [n for n in nodes if words and set(words) <= set(n.gpu.name.upper().split())]
    if not able:
        raise ProfileError(
            f"no hardware profile has the GPU of {row.hw!r}",
            where=where,
            remedy="write hw as 16x H200; k31ctl profiles list hardware shows the GPUs",
        )
    node = min(able, key=lambda n: (n.num_gpus, n.id))
    asked = sizes.get("tp", 1) * sizes.get("pp", 1)
    count = int(found[1]) if found and found[1] else asked
    return node, max(1, -(-count // node.num_gpus))


def _engine(row: _Row, where: str) -> str:
    """The engine that a row names, in its own words or its source's; SGLang where it names none."""
    said = f"{row.engine or ''} {row.src} {row.id}".lower()
    named = next((name for name in _ENGINES if name in said), None)
    if named is None and row.engine:
        raise ProfileError(
            f"engine {row.engine!r} is none that can be predicted",
            where=where,
            remedy=f"name one of {', '.join(_ENGINES)}",
        )
    return named or "sglang"


def _draft_id(store: Store, spec: str, engine: str, model_id: str, where: str) -> str:
    for draft_id in store.ids(Kind.DRAFTS):
        draft = load_draft(store, draft_id)
        if spec.lower() in draft_id and engine in draft.engines and model_id in draft.targets:
            return draft_id
    raise ProfileError(
        f"no draft profile fits spec {spec!r} of {model_id} under {engine}",
        where=where,
        remedy="add a profile under drafts, or write spec: null",
    )


def _workload(row: _Row, num_gpus: int) -> Workload:
    """The requests of a row: a stated context is a cache that is full.

    Throughput of prompts and answers without lengths is SGLang's usual 8k in, 1k out.
    """
    c = row.c or row.batch
    if c is None and row.decode_tok_s_per_gpu and row.tok_s_per_user:
        c = round(row.decode_tok_s_per_gpu * num_gpus / row.tok_s_per_user)
    if row.context is not None:
        prompt, output, cached = row.context, row.osl or _USUAL_OUTPUT, 1 - 1 / row.context
    else:
        usual = _COOKBOOK_PROMPT if row.tok_s_per_gpu else _USUAL_PROMPT
        prompt, output, cached = row.isl or usual, row.osl or _USUAL_OUTPUT, 0.0
    return Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        cached_fraction=cached if isfinite(cached) else 0.0,
        concurrency=c or 1,
        rate_per_s=None,
    )


def _request(row: _Row, sizes: Mapping[str, int], num_nodes: int) -> PlanRequest:
    length = (row.context or row.isl or _USUAL_PROMPT) + (row.osl or _USUAL_OUTPUT)
    return PlanRequest(
        contexts=(length,),
        batches=(1,),
        layout=AskedLayout(
            nodes=num_nodes,
            tp=sizes.get("tp"),
            pp=sizes.get("pp"),
            dp=sizes.get("dp"),
            ep=sizes.get("ep"),
            dcp=sizes.get("dcp"),
        ),
        kv_dtype=row.kv,
        index_dtype=None,
        state_dtype=StateDtype.FP32,
        kv_memory_bytes=row.kv_memory,
        max_model_len=row.max_model_len,
        prefix_caching=row.prefix_caching,
        draft_tokens=None,
        replay_ssm=False,
        state_slots=None,
        chunk_tokens=row.chunk_tokens,
        memory_fraction=row.memory_fraction,
        state_ratio=row.state_ratio,
        text_only=False,
        image=None,
        lora_rank=None,
        offload=None,
        resident_experts=None,
        workload=AskedWorkload(
            prompt_tokens=row.isl,
            output_tokens=row.osl,
            cached_fraction=0.0,
            concurrency=row.c,
            rate_per_s=None,
            accepted_tokens=row.accepted,
        ),
        cost=NO_WISHES,
        simulation=None,
    )


def other_tables(store: Store, name: str) -> list[str]:
    """The packaged tables beside this one."""
    return [each for each in store.ids(Kind.MEASUREMENTS) if each != name]


def check_table(store: Store, profile_id: str) -> None:
    """Read a packaged table whole; raises ProfileError for the first bad row."""
    load_trials(store, profile_id, load_speed(store))
