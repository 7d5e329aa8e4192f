"""Small searches on real profiles."""

from functools import cache

from k31ctl.core.kv_cache import KvFormat, StateDtype
from k31ctl.core.search import SearchResult, search
from k31ctl.core.search_space import SearchSpace, System
from k31ctl.core.slo import Slo, parse_slo
from k31ctl.core.workload import Workload
from tests.core.deployments import asked, model, node, parts, speed

USD = {"8x-b300": 6.0, "8x-h200": 2.5, "4x-gb300": 5.0, "8x-mi355x": 3.0}
NO_LIMITS = Slo(limits=())


def load(prompt: int = 8192, output: int = 1024) -> Workload:
    return Workload(
        prompt_tokens=prompt,
        output_tokens=output,
        cached_fraction=0.0,
        concurrency=1,
        rate_per_s=None,
    )


def space(
    *systems: str,
    engines: tuple[str, ...] = ("vllm",),
    concurrencies: tuple[int, ...] = (1, 4, 16, 64),
    counts: tuple[int, ...] = (1, 2),
    kv: tuple[KvFormat | None, ...] = (None,),
    loads: tuple[Workload, ...] = (load(),),
    model_id: str = "kimi-k3.1-pro",
    priced: bool = True,
    **given: object,
) -> SearchSpace:
    names = systems or ("8x-b300",)
    return SearchSpace(
        model=model(model_id),
        systems=tuple(
            System(
                node=node(name),
                node_counts=counts,
                usd_per_gpu_hour=USD.get(name) if priced else None,
            )
            for name in names
        ),
        engines=tuple(parts(model_id, names[0], engine).engine for engine in engines),
        drafts=(None,),
        kv_dtypes=kv,
        state_dtypes=(StateDtype.FP32,),
        chunk_tokens=(None,),
        concurrencies=concurrencies,
        workloads=loads,
        base=asked(**given),
        speed=speed(),
        utilisation=1.0,
    )


@cache
def found(*systems: str, slo: str = "") -> SearchResult:
    return search(space(*systems), slo=parse_slo(slo) if slo else NO_LIMITS)
