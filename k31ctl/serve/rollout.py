"""What is to be started, whatever the file format: servers, their words, their environment."""

from enum import StrEnum

from k31ctl.core.plan import Plan
from k31ctl.core.recipe import Recipe
from k31ctl.values import frozen


class Where(StrEnum):
    """What a word holds that every node has another one of, or that a file cannot know."""

    RANK = "rank"
    HEAD = "head"
    NODE_ADDRESS = "node-address"
    PREFILL = "prefill"
    DECODE = "decode"
    INTERFACE = "interface"


class Standing(StrEnum):
    """How far a setting is known to work."""

    VERIFIED = "verified"
    PUBLISHED = "published"
    DERIVED = "derived"
    UNVERIFIED = "unverified"
    ASKED = "asked"


@frozen
class NodeValue:
    """Text around something that differs by node; ``times`` multiplies a rank."""

    where: Where
    before: str = ""
    after: str = ""
    times: int = 1

    def at(self, known: str) -> str:
        """The text on a node where the thing itself is known."""
        value = str(int(known) * self.times) if self.where is Where.RANK else known
        return f"{self.before}{value}{self.after}"


Word = str | NodeValue


@frozen
class Choice:
    """One flag as it will be given: its words, why, on whose word, and how well known.

    ``value`` is what the words say, a NodeValue where nodes differ; ``followers_only`` leaves it
    out on the first node.
    """

    flag: str
    value: object
    words: tuple[Word, ...]
    reason: str
    source: str
    standing: Standing
    followers_only: bool = False


@frozen
class Variable:
    """One environment variable, with why, on whose word, and how well known."""

    name: str
    value: Word
    reason: str
    source: str
    standing: Standing


@frozen
class Departure:
    """What a published recipe says and the launch does not, with the reason."""

    what: str
    reason: str


@frozen
class Weights:
    """Where the checkpoint is: a folder on every node, or a repository that the engine fetches."""

    repository: str
    folder: str | None
    num_bytes: int


@frozen
class Server:
    """One engine over some nodes: the same program on each, its words, and what it answers.

    ``first_node`` is the place of its head among the nodes of all servers. ``program`` is followed
    by the model's own words, then by those of ``choices``.
    """

    name: str
    program: tuple[str, ...]
    model_flag: tuple[str, ...]
    choices: tuple[Choice, ...]
    variables: tuple[Variable, ...]
    departures: tuple[Departure, ...]
    recipe: Recipe | None
    plan: Plan
    port: int
    health: str
    first_node: int
    num_nodes: int
    gpus_per_node: int
    shared_memory_bytes: int
    start_low_s: float
    start_high_s: float
    ready_line: str
    metrics_port: int

    @property
    def node_values(self) -> tuple[NodeValue, ...]:
        """Everything that differs by node."""
        words = [word for choice in self.choices for word in choice.words]
        words += [variable.value for variable in self.variables]
        return tuple(word for word in words if isinstance(word, NodeValue))

    def model_words(self, model: str) -> tuple[str, ...]:
        """The words that name the model."""
        return (*self.model_flag, model)

    def words(self, model: str, *, follower: bool) -> tuple[Word, ...]:
        """The whole command on the first node, or on another, which ends with what it alone has."""
        shared = (c for c in self.choices if not c.followers_only)
        own = (c for c in self.choices if c.followers_only and follower)
        settings = (word for choice in (*shared, *own) for word in choice.words)
        return (*self.program, *self.model_words(model), *settings)


@frozen
class Router:
    """What stands before two pools; ``words`` name each by the host of its first node.

    ``image`` is its own, None where it is that of the servers; ``note`` is for whoever starts it.
    """

    program: tuple[str, ...]
    words: tuple[Word, ...]
    port: int
    image: str | None = None
    note: str = ""


@frozen
class Rollout:
    """Everything that a file format needs to know; the same for all formats.

    ``hosts`` are the names of the nodes where they are known, in the order of their ranks.
    """

    name: str
    title: str
    engine: str
    version: str
    amd: bool
    weights: Weights
    image: str | None
    served_name: str
    servers: tuple[Server, ...]
    router: Router | None
    head: str | None
    hosts: tuple[str, ...]
    interface: str | None
    warnings: tuple[str, ...]

    @property
    def model(self) -> str:
        """The model as the engine is told it where it runs outside a container."""
        return self.weights.folder or self.weights.repository

    def host(self, server: Server, rank: int) -> str | None:
        """The name or address of a server's node, where it is known."""
        at = server.first_node + rank
        if at < len(self.hosts):
            return self.hosts[at]
        return self.head if at == 0 else None

    @property
    def num_nodes(self) -> int:
        """Nodes of all servers."""
        return sum(server.num_nodes for server in self.servers)
