"""What the rules look at: a launch, what it starts, on what, and what kind of file it came from."""

from collections.abc import Mapping
from enum import StrEnum
from functools import reduce
from operator import mul

from k31ctl.core.draft import Draft
from k31ctl.core.engine import Engine
from k31ctl.core.flags import FlagCatalog
from k31ctl.core.hardware import Node
from k31ctl.core.launch import Form, Launch
from k31ctl.core.model import Model
from k31ctl.core.release import release_key
from k31ctl.core.rules.open_values import OpenFields, OpenValueError, known_or, plain_fields
from k31ctl.core.speed_parameters import SpeedParameters
from k31ctl.values import frozen

K3 = "KimiK3ForConditionalGeneration"
K31 = "KimiK31ForConditionalGeneration"
BLACKWELL = ("sm_100", "sm_103")
FRACTION_FLAGS = ("--gpu-memory-utilization", "--mem-fraction-static")
# The flags of the sizes whose product is the ranks; those of tensor parallelism first.
SIZE_FLAGS = (
    "--tensor-parallel-size",
    "--tp-size",
    "--attn-tp-size",
    "--pipeline-parallel-size",
    "--pp-size",
    "--data-parallel-size",
    "--dp-size",
)
_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "tokenspeed": "TokenSpeed"}
_SIZES = {
    "tp": ("--tensor-parallel-size", "--tp-size"),
    "pp": ("--pipeline-parallel-size", "--pp-size"),
    "dcp": ("--decode-context-parallel-size", "--dcp-size"),
    "nnodes": ("--nnodes",),
}


class FileKind(StrEnum):
    """Where a launch was read; the kind decides what must stand in the same file."""

    COMMAND = "command"
    SHELL = "shell script"
    SBATCH = "Slurm batch script"
    DOCKER = "docker command"
    COMPOSE = "Compose file"
    KUBERNETES = "Kubernetes manifest"
    SYSTEMD = "systemd unit"


@frozen
class Container:
    """What the container of a launch is given; None where the file does not say."""

    image: str = ""
    shm_bytes: int | None = None
    host_ipc: bool = False
    host_network: bool = False
    privileged: bool = False
    memlock_unlimited: bool = False
    has_gpus: bool = False
    gpus: int | None = None
    rdma: bool = False
    capabilities: tuple[str, ...] = ()
    startup_seconds: float | None = None
    host_memory_bytes: int | None = None


@frozen
class LaunchContext:
    """Everything that a rule may ask.

    ``version`` is the release that runs, which may not be the one whose flags ``catalog`` has;
    ``open_ended`` is whether a word of the command is only known when it runs,
    ``open_environment`` whether variables come from a file that is not read. ``open_positions``
    are the words, ``open_variables`` the variables, whose value is only known then: what asks for
    one (``text``, ``number``, ``fields``, ``variable`` and all that rests on them) raises
    OpenValueError, on which a rule says nothing.
    None in ``model``, ``node`` or ``engine`` means that it is not known, and rules that need it
    say nothing. ``nodes`` is 0 where nothing says how many there are; ``told_gpus_per_node`` and
    ``told_memory_bytes`` are what a batch script asks for, 0 where it does not. ``router_ports``
    are the bootstrap ports of prefill servers by the router of the same file. ``on_ray`` is
    whether the file speaks of a Ray cluster, ``has_carriage_returns`` whether its lines end in
    CR and LF, ``published`` whether the launch has every
    setting of a published recipe.
    """

    launch: Launch
    catalog: FlagCatalog
    version: str
    kind: FileKind
    model: Model | None
    node: Node | None
    nodes: int
    engine: Engine | None
    draft: Draft | None
    speed: SpeedParameters | None
    container: Container | None = None
    open_environment: bool = False
    installs: tuple[str, ...] = ()
    gpu_hint: str = ""
    open_ended: bool = False
    open_positions: frozenset[int] = frozenset()
    open_variables: frozenset[str] = frozenset()
    told_gpus_per_node: int = 0
    told_memory_bytes: int = 0
    router_ports: tuple[int, ...] = ()
    on_ray: bool = False
    has_carriage_returns: bool = False
    published: bool = False

    @property
    def name(self) -> str:
        """The engine."""
        return self.launch.engine

    @property
    def release(self) -> str:
        """The release whose flags are known, as people write it."""
        return f"{_NAMES.get(self.name, self.name)} {self.catalog.version}"

    @property
    def architecture(self) -> str:
        """Of the model, empty where it is not known."""
        return "" if self.model is None else self.model.architecture

    @property
    def is_k3(self) -> bool:
        """Whether the model is Kimi K3 or K3.1."""
        return self.architecture in (K3, K31)

    @property
    def gpu(self) -> str:
        """The architecture of the GPUs, empty where they are not known."""
        return "" if self.node is None else self.node.gpu.architecture

    @property
    def is_amd(self) -> bool:
        """Whether the GPUs are known to be AMD's."""
        return self.gpu.startswith("gfx")

    @property
    def gpu_gib(self) -> float:
        """Memory of one GPU in GiB, 0 where it is not known."""
        return 0.0 if self.node is None else self.node.gpu.memory_bytes / 2**30

    @property
    def gpus_per_node(self) -> int:
        """GPUs that the launch has on one node, 0 where that is not known."""
        given = self.container.gpus if self.container is not None else None
        if self.node is not None:
            return self.node.num_gpus
        return given or self.told_gpus_per_node

    def value(self, flag: str, default: object = None) -> object:
        """What the flag was set to."""
        return self.launch.value(flag, default)

    def has(self, flag: str) -> bool:
        """Whether the flag is there at all."""
        return self.launch.setting(flag) is not None

    def is_open(self, flag: str) -> bool:
        """Whether the flag is there with a value that is only known when the launch runs."""
        return not self.open_positions.isdisjoint(self.at(flag))

    def _require_known(self, flag: str) -> None:
        if self.is_open(flag):
            raise OpenValueError(flag)

    def text(self, flag: str) -> str:
        """The flag's value as lower-case text, empty where it is not set."""
        self._require_known(flag)
        value = self.launch.value(flag)
        return "" if value is None else str(value).casefold()

    def number(self, flag: str, default: float = 0) -> float:
        """The flag's value as a number, else ``default``."""
        self._require_known(flag)
        value = self.launch.value(flag)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return default
        return value

    def fields(self, flag: str) -> Mapping[str, object]:
        """The flag's JSON object, empty where it is not set or no object."""
        value = self.launch.value(flag)
        if not isinstance(value, dict):
            self._require_known(flag)
            return {}
        fields = plain_fields(value)
        return OpenFields(fields=fields) if self.is_open(flag) else fields

    def at(self, *flags: str) -> tuple[int, ...]:
        """Where the uses of these flags that count stand in the words."""
        found = (self.launch.setting(flag) for flag in flags)
        return tuple(p for setting in found if setting is not None for p in setting.positions)

    def variable(self, name: str) -> str:
        """The value of an environment variable, empty where it is not set."""
        if name in self.open_variables:
            raise OpenValueError(name)
        return self.launch.environment.get(name, "")

    def size(self, name: str) -> int:
        """One of tp, pp, dcp and nnodes, 1 where it is not set."""
        for flag in _SIZES[name]:
            number = int(self.number(flag, 0))
            if number > 0:
                return number
        return 1

    @property
    def dp(self) -> int:
        """Replicas or attention groups that data parallelism makes."""
        flags = {
            "vllm": ("--data-parallel-size",),
            "sglang": ("--attn-dp-size", "--dp-size"),
            "tokenspeed": ("--data-parallel-size",),
        }
        return max([1, *(int(self.number(flag, 1)) for flag in flags.get(self.name, ()))])

    @property
    def attention_dp(self) -> int:
        """Data parallelism inside one tensor-parallel group, as SGLang has it."""
        if self.name != "sglang":
            return 1
        old = int(self.number("--dp-size", 1)) if self.value("--enable-dp-attention") else 1
        return max(int(self.number("--attn-dp-size", 1)), old)

    @property
    def ep(self) -> int:
        """Ranks that share the experts."""
        match self.name:
            case "vllm":
                on = bool(self.value("--enable-expert-parallel"))
                return self.size("tp") * self.dp if on else 1
            case "sglang":
                return max(1, int(self.number("--ep-size", 1)))
            case _:
                if self.value("--enable-expert-parallel"):
                    return self.size("tp")
                return max(1, int(self.number("--expert-parallel-size", 1)))

    @property
    def attention_tp(self) -> int:
        """Ranks that divide the attention heads."""
        if self.name == "tokenspeed" and self.has("--attn-tp-size"):
            return max(1, int(self.number("--attn-tp-size", 1)))
        tp, groups = self.size("tp"), self.attention_dp
        return tp // groups if tp % groups == 0 else tp

    @property
    def ranks(self) -> int:
        """GPUs that the whole launch takes."""
        sizes = [self.size("tp"), self.size("pp")]
        if self.name == "vllm":
            sizes.append(self.dp)
        if self.name == "sglang" and self.attention_dp == 1:
            sizes.append(self.dp)
        return reduce(mul, sizes)

    @property
    def told_nodes(self) -> int:
        """Nodes that the command itself tells of, 1 where it tells of none that are known."""
        local = int(known_or(lambda: self.number("--data-parallel-size-local"), 0.0))
        groups = -(-known_or(lambda: self.dp, 1) // local) if local > 0 else 1
        return max(known_or(lambda: self.size("nnodes"), 1), groups)

    @property
    def most_nodes(self) -> int:
        """The nodes that anything tells of, at least 1."""
        return max(self.nodes, self.told_nodes)

    @property
    def spans_nodes(self) -> bool:
        """Whether the command itself says that it is one of several."""
        return (
            self.has("--dist-init-addr")
            or self.has("--data-parallel-address")
            or self.size("nnodes") > 1
        )

    @property
    def wrapped(self) -> bool:
        """Whether another program takes the requests and starts the engine for itself."""
        return self.launch.form in (Form.DYNAMO_VLLM, Form.DYNAMO_SGLANG)

    @property
    def role(self) -> str:
        """``prefill`` or ``decode`` of a disaggregated pair as SGLang and TokenSpeed name it."""
        mode = self.text("--disaggregation-mode")
        return "" if mode == "null" else mode

    @property
    def draft_method(self) -> str:
        """How the launch speculates, in lower case, empty where it does not."""
        method = str(self.fields("--speculative-config").get("method", "") or "").casefold()
        return method or self.text("--spec-method") or self.text("--speculative-algorithm")

    @property
    def draft_name(self) -> str:
        """The draft model that the launch names, empty where it names none."""
        model = self.fields("--speculative-config").get("model") or self.value("--spec-model")
        return str(model or self.value("--speculative-draft-model-path") or "")

    def before(self, version: str) -> bool:
        """Whether the release that runs is older; False where it is not a number."""
        mine, other = release_key(self.version), release_key(version)
        return mine is not None and other is not None and mine < other

    @property
    def is_release(self) -> bool:
        """Whether the version is a number, not a branch."""
        return release_key(self.version) is not None
