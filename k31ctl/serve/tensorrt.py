"""A launch of TensorRT-LLM: its YAML, and a script or a job that starts a rank for each GPU.

Its flags are not catalogued: what is written follows its deployment guide for Kimi K3, and the
sizes follow from the memory model.
"""

import shlex
from typing import Any, Final

from k31ctl.catalog.engines import resolve_engine
from k31ctl.catalog.hardware import load_node
from k31ctl.catalog.models import load_model
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.storage import load_startup, load_storage
from k31ctl.catalog.store import Store
from k31ctl.core.deployment import deployment
from k31ctl.core.inventory import inventory
from k31ctl.core.layout import Layout
from k31ctl.core.layout_rules import AskedLayout
from k31ctl.core.plan import Plan, plan
from k31ctl.core.request import Parts
from k31ctl.errors import UsageError
from k31ctl.serve.asked import Asked, Place, Target
from k31ctl.serve.files import LaunchFile, heading, reason_of, yaml_text
from k31ctl.serve.formats_shell import limit_commands
from k31ctl.serve.formats_slurm import mounts
from k31ctl.serve.gather import repository_of
from k31ctl.serve.launch_names import dns_name, folder_of, title_of
from k31ctl.serve.memory_settings import SOURCE, room
from k31ctl.serve.plan_request import plan_request
from k31ctl.serve.planned_settings import differences, passed_over
from k31ctl.serve.rollout import Choice, Rollout, Server, Standing, Weights
from k31ctl.serve.server_settings import SHARED_MEMORY_BYTES, start_times

ENGINE: Final = "tensorrt-llm"
_GUIDE: Final = "TensorRT-LLM deployment guide for Kimi K3"
_PORT: Final = 8000
_CHUNK_TOKENS: Final = 8192
_GUIDE_BATCH: Final = 32
_MOE_TOKENS: Final = 33_024
_PAGE_TOKENS: Final = 64


def tensorrt_rollout(
    store: Store, *, model: str, engine: str, on: str, asked: Asked, place: Place
) -> Rollout:
    """Return what is to be started; raises RefusedError where memory or the engine refuses."""
    if asked.draft or asked.kv_dtype or asked.overlays or asked.text_only:
        raise UsageError(
            "TensorRT-LLM is written with a bf16 cache, without a draft and without additions",
            where="--draft, --kv-dtype, --overlay, --text-only",
            remedy="leave them out",
        )
    if asked.target not in (Target.SHELL, Target.SLURM):
        raise UsageError(
            "TensorRT-LLM is written as a script or a Slurm job",
            where=f"--as {asked.target}",
            remedy="use --as shell on one node, or --as slurm",
        )
    loaded = load_model(store, model)
    chosen = resolve_engine(store, engine, loaded)
    parts = Parts(
        model=loaded,
        node=load_node(store, on),
        engine=chosen,
        draft=None,
        speed=load_speed(store, None),
        prices=None,
    )
    server = _server(store, parts, asked)
    repository = repository_of(store, model, loaded)
    return Rollout(
        name=dns_name(f"{loaded.id}-{ENGINE}"),
        title=title_of(parts, chosen.version, (server,)),
        engine=ENGINE,
        version=chosen.version,
        amd=False,
        weights=Weights(
            repository=repository,
            folder=folder_of(asked.folder, absolute=False),
            num_bytes=inventory(loaded).total_bytes,
        ),
        image=asked.image,
        served_name=asked.served_name or repository,
        servers=(server,),
        router=None,
        head=place.head,
        hosts=place.hosts,
        interface=place.interface,
        warnings=(
            "unverified: its flags are not catalogued; they follow its deployment guide",
            *asked.warnings,
            *passed_over(ENGINE, asked.planned, sparse=False),
            *differences(asked, server),
        ),
    )


def _server(store: Store, parts: Parts, asked: Asked) -> Server:
    flags = {"--max-num-batched-tokens": _CHUNK_TOKENS}
    request = plan_request(
        flags,
        layout=asked.layout,
        context_tokens=asked.context_tokens,
        max_model_len=None,
        draft_tokens=None,
    )
    built = deployment(parts, request)
    there = room(parts, request, built, {}, asked_len=asked.max_model_len)
    sized = plan_request(
        flags,
        layout=_layout(built.layout),
        context_tokens=min(asked.context_tokens, there.max_model_len),
        max_model_len=there.max_model_len,
        draft_tokens=None,
    )
    planned = plan(parts, sized)
    holds = built.pool.max_requests(min(asked.context_tokens, there.max_model_len))
    low, high = start_times(load_storage(store, "local-nvme"), load_startup(store), planned)
    return Server(
        name="serve",
        program=("trtllm-serve",),
        model_flag=(),
        choices=_choices(planned, length=there.max_model_len, holds=holds, asked=asked),
        variables=(),
        departures=(),
        recipe=None,
        plan=planned,
        port=asked.port or _PORT,
        health="/health",
        first_node=0,
        num_nodes=planned.layout.nodes,
        gpus_per_node=planned.layout.gpus_per_node,
        shared_memory_bytes=SHARED_MEMORY_BYTES,
        start_low_s=low,
        start_high_s=high,
        ready_line="",
        metrics_port=asked.port or _PORT,
    )


def _layout(layout: Layout) -> AskedLayout:
    return AskedLayout(
        nodes=layout.nodes,
        tp=layout.tp,
        pp=layout.pp,
        dp=layout.dp,
        ep=layout.ep,
        dcp=layout.dcp,
    )


def _choices(planned: Plan, *, length: int, holds: int, asked: Asked) -> tuple[Choice, ...]:
    """Every entry of the YAML, each with its reason; they have no words on the command line."""
    layout = planned.layout
    batch = max(1, min(_GUIDE_BATCH, holds))
    fraction = planned.parts.engine.memory.fraction.value
    attention = layout.dp > 1
    guide: dict[str, tuple[Any, str]] = {
        "tensor_parallel_size": (layout.tp, "ranks of the server"),
        "moe_expert_parallel_size": (layout.ep, "experts are spread, never cut: as many as ranks"),
        "enable_attention_dp": (attention, "each rank has requests and a cache of its own"),
        "trust_remote_code": (True, "tokenizer and processor come from the checkpoint's own code"),
        "max_num_tokens": (_CHUNK_TOKENS, "the chunk of prompt tokens in a step"),
        "enable_chunked_prefill": (True, "long prompts go in chunks"),
        "disable_overlap_scheduler": (False, "the next step is prepared during this one"),
        "cuda_graph_config": (
            {"enable_padding": True, "max_batch_size": batch},
            "graphs up to the largest batch",
        ),
        "moe_config": (
            {"max_num_tokens": _MOE_TOKENS, "use_low_precision_moe_combine": attention},
            "room of the experts' workspace",
        ),
        "kv_cache_config": (
            {
                "enable_block_reuse": False,
                "free_gpu_memory_fraction": fraction,
                "tokens_per_block": _PAGE_TOKENS,
            },
            "the KDA states need the memory beside this pool; pages must be of 64 tokens",
        ),
    }
    sizes = {
        "max_batch_size": (batch, f"the cache holds {holds:,} requests of the usual length"),
        "max_seq_len": (length, f"the cache holds one request of {length:,} tokens"),
    }
    found = [_choice(name, *entry, _GUIDE, Standing.PUBLISHED) for name, entry in guide.items()]
    standing = Standing.ASKED if asked.max_model_len else Standing.DERIVED
    return (*found, *(_choice(n, *entry, SOURCE, standing) for n, entry in sizes.items()))


def _choice(name: str, value: object, reason: str, source: str, standing: Standing) -> Choice:
    return Choice(flag=name, value=value, words=(), reason=reason, source=source, standing=standing)


def tensorrt_files(made: Rollout, target: Target) -> tuple[LaunchFile, ...]:
    """Return the YAML and what starts it; raises UsageError for a script over several nodes."""
    (server,) = made.servers
    lines = heading(made) + [f"# {c.flag}: {reason_of(c)}" for c in server.choices]
    text = yaml_text({c.flag: c.value for c in server.choices})
    config = LaunchFile(path="config.yaml", text="\n".join([*lines, text]))
    if target is Target.SLURM:
        rank = LaunchFile(path="rank.sh", text=_rank(made, server), executable=True)
        return (config, LaunchFile(path="launch.sbatch", text=_batch(made, server)), rank)
    if server.num_nodes > 1:
        raise UsageError(
            "several nodes are started by MPI",
            where="--as shell",
            remedy="use --as slurm",
        )
    script = ["#!/usr/bin/env bash", *heading(made), "set -euo pipefail", ""]
    script += ['folder="$(cd -- "$(dirname -- "$0")" && pwd)"', *limit_commands(), _caches()]
    script += ["", f"exec {_command(made, server)}", ""]
    return (
        config,
        LaunchFile(path="launch.sh", text="\n".join(script), executable=True),
    )


def _command(made: Rollout, server: Server) -> str:
    words = shlex.join((*server.program, made.model, "--host", "0.0.0.0", "--port"))
    return f'{words} {server.port} --config "$folder"/config.yaml'


def _caches() -> str:
    """Caches on the node's own disk for each rank: a shared home is written by all at once."""
    places = ["TRITON_CACHE_DIR", "FLASHINFER_WORKSPACE_BASE"]
    rank = "${SLURM_PROCID:-0}"
    return "\n".join(f'export {name}="${{TMPDIR:-/tmp}}/{name.lower()}-{rank}"' for name in places)


def _batch(made: Rollout, server: Server) -> str:
    ranks = server.num_nodes * server.gpus_per_node
    head = [
        "#!/usr/bin/env bash",
        f"#SBATCH --job-name={made.name}",
        f"#SBATCH --nodes={server.num_nodes}",
        f"#SBATCH --ntasks-per-node={server.gpus_per_node}",
        f"#SBATCH --gpus-per-node={server.gpus_per_node}",
        "#SBATCH --mem=0",
        "#SBATCH --output=%x-%j.log",
        "#SBATCH --exclusive",
        *heading(made),
        "set -euo pipefail",
        "",
        "# the folder of these files, as every node sees it",
        'folder="${LAUNCH_FOLDER:-$SLURM_SUBMIT_DIR}"',
    ]
    words = ["srun", "--mpi=pmix", f"--ntasks={ranks}", "--kill-on-bad-exit=1"]
    called = f"{shlex.join(words)} "
    if made.image is not None:
        head.append("# the container options are those of the pyxis plugin")
        called += f"{shlex.quote(f'--container-image={made.image}')} "
        called += f'--container-mounts="$folder":"$folder"{mounts(made)} '
    note = "# one MPI rank for each GPU"
    return "\n".join([*head, "export folder", "", note, f'{called}bash "$folder"/rank.sh', ""])


def _rank(made: Rollout, server: Server) -> str:
    lines = ["#!/usr/bin/env bash", *heading(made), "set -euo pipefail", ""]
    lines += ['folder="${folder:?the batch script sets it}"', *limit_commands(), _caches(), ""]
    return "\n".join([*lines, f"exec trtllm-llmapi-launch {_command(made, server)}", ""])
