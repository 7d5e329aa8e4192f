"""What a machine is asked to serve, out of the profiles."""

from k31ctl.catalog.engines import load_engine, resolve_engine
from k31ctl.catalog.hardware import load_node, load_nodes
from k31ctl.catalog.models import load_model
from k31ctl.catalog.storage import load_storage
from k31ctl.catalog.store import Kind, Store
from k31ctl.core.host_rule import Need
from k31ctl.core.inventory import inventory
from k31ctl.core.storage import DEFAULT_READER

_LOCAL_DISKS = "local-nvme"


def load_need(store: Store, *, model: str, engine: str, on: str | None, num_nodes: int) -> Need:
    """Return what the checks of a machine depend on; ``on`` of ``this`` expects nothing."""
    loaded = load_model(store, model)
    chosen = resolve_engine(store, engine, loaded)
    reader = load_storage(store, _LOCAL_DISKS).readers[DEFAULT_READER]
    releases = [
        load_engine(store, name)
        for name in store.ids(Kind.ENGINES)
        if name.startswith(f"{chosen.engine}-")
    ]
    return Need(
        model=loaded,
        engine=chosen,
        engine_versions={r.version: loaded.architecture in r.architectures for r in releases},
        num_nodes=num_nodes,
        weight_bytes=inventory(loaded).total_bytes,
        expected=load_node(store, on) if on not in (None, "this") else None,
        nodes=tuple(load_nodes(store)),
        loader_bytes_per_s=reader.rate.value_bytes_per_s,
        loader_source=reader.rate.source,
        uses_tiktoken=loaded.architecture.startswith("Kimi"),
    )
