"""How a model is spread over GPUs: the sizes of a layout, and what it makes of each rank."""

from k31ctl.core.engine import DataParallel, StageSplit
from k31ctl.values import frozen


@frozen
class Layout:
    """Parallel sizes as the engines' own flags name them.

    With ``DataParallel.GROUPS`` (vLLM) the world is tp x pp x dp and experts spread over tp x dp;
    with ``DataParallel.ATTENTION`` (SGLang and others) dp splits attention inside tp.
    """

    nodes: int
    gpus_per_node: int
    tp: int
    pp: int
    dp: int
    ep: int
    dcp: int
    data_parallel: DataParallel
    stage_split: StageSplit

    @property
    def num_gpus(self) -> int:
        """GPUs that there are."""
        return self.nodes * self.gpus_per_node

    @property
    def world(self) -> int:
        """GPUs that the layout uses."""
        groups = self.dp if self.data_parallel is DataParallel.GROUPS else 1
        return self.tp * self.pp * groups

    @property
    def attention_tp(self) -> int:
        """Ranks that share the heads of one attention layer."""
        return self.tp if self.data_parallel is DataParallel.GROUPS else self.tp // self.dp

    @property
    def expert_world(self) -> int:
        """Ranks of one stage that share the experts of a layer."""
        return self.tp * self.dp if self.data_parallel is DataParallel.GROUPS else self.tp

    @property
    def expert_tp(self) -> int:
        """Ranks that share one expert."""
        return self.expert_world // self.ep

    @property
    def text(self) -> str:
        """The layout in the field's shorthand, such as TP8xPP2."""
        sizes = {"TP": self.tp, "PP": self.pp, "DP": self.dp, "EP": self.ep, "DCP": self.dcp}
        named = [f"{name}{size}" for name, size in sizes.items() if size > 1]
        return "x".join(named) if named else "one GPU"


def stage_bounds(num_layers: int, layout: Layout) -> tuple[tuple[int, int], ...]:
    """First layer and end of each pipeline stage.

    Layers that do not divide go one each to the last stages; vLLM spares the very last, which
    holds the output head; the embedded engine fills stages from the front.
    Source: get_pp_indices in vLLM 0.33.0 distributed/utils.py and SGLang 0.5.23
    srt/distributed/utils.py.
    """
    bounds, first = [], 0
    for size in _stage_sizes(num_layers, layout.pp, layout.stage_split):
        bounds.append((first, first + size))
        first += size
    return tuple(bounds)


def _stage_sizes(num_layers: int, pp: int, split: StageSplit) -> list[int]:
    if split is StageSplit.FULL_FIRST:
        full = -(-num_layers // pp)
        return [max(0, min(full, num_layers - stage * full)) for stage in range(pp)]
    sizes = [num_layers // pp] * pp
    spared = 1 if split is StageSplit.SPARE_LAST else 0
    for extra in range(num_layers % pp):
        sizes[-(extra + 1 + spared) % pp] += 1
    return sizes
