"""``k31ctl serve DIR --engine embedded``: the engine of our own, here and now."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from k31ctl.api.machine import require_engine
from k31ctl.core.embedded import Wish
from k31ctl.values import frozen


@frozen
class Endpoint:
    """Where to answer, under which name, and the key that is asked for."""

    host: str
    port: int
    served_name: str | None
    api_key: str | None


def serve_embedded(
    spec: str,
    wish: Wish,
    endpoint: Endpoint,
    *,
    engine: str,
    profiles: list[Path] | None,
    as_json: bool,
) -> None:
    """Plan the memory, load the weights and answer until interrupted."""
    from k31ctl.catalog.engines import resolve_engine
    from k31ctl.catalog.models import model_at
    from k31ctl.catalog.store import Store, default_folders
    from k31ctl.fetch.partial_marker import require_whole
    from k31ctl.host.free_memory import free_host_bytes, this_machine
    from k31ctl.report.embedded import show_choice, show_expert_uses, show_serving
    from k31ctl.serve.local_model import checkpoint_at

    store = Store(default_folders(profiles or ()))
    folder = checkpoint_at(spec)
    if wish.layers is None:
        require_whole(folder)
    shape = model_at(folder)
    release = resolve_engine(store, engine, shape)
    require_engine()
    from k31ctl.engine.checkpoint import Checkpoint
    from k31ctl.engine.service.model_stepper import opened
    from k31ctl.engine.service.server import require_free, run_service
    from k31ctl.engine.start import choose, loaded, require_ends

    require_free(endpoint.host, endpoint.port)
    free = free_host_bytes(this_machine())
    choice = choose(Checkpoint(folder), shape, release, wish, host_free_bytes=free)
    require_ends(choice)
    name = endpoint.served_name or shape.id
    if not as_json:
        show_choice(shape, choice.stages, choice.reasons, layers=wish.layers)
    model = loaded(choice)
    load = choice.plan.load
    served, generator = opened(
        choice.checkpoint,
        choice.target,
        name=name,
        num_slots=load.num_requests,
        num_tokens=load.num_tokens,
        model=model,
    )
    with closing(generator):
        run_service(
            replace(served, max_model_tokens=min(load.max_model_len, served.max_model_tokens)),
            generator,
            host=endpoint.host,
            port=endpoint.port,
            api_key=endpoint.api_key,
            when_ready=lambda url: show_serving(
                url,
                name,
                choice.stages,
                reasons=choice.reasons,
                paths=model.paths(),
                inputs={
                    "checkpoint": str(folder),
                    "engine": engine,
                    "device": wish.device,
                    "dtype": wish.dtype,
                    "layers": list(wish.layers) if wish.layers is not None else None,
                    "experts": wish.experts,
                    "experts_stored_bytes": wish.experts_stored_bytes,
                    "experts_ready_bytes": wish.experts_ready_bytes,
                    "plain": wish.is_plain,
                    "host": endpoint.host,
                    "port": endpoint.port,
                },
                as_json=as_json,
            ),
            when_ended=lambda: show_expert_uses(generator.load().expert_uses, as_json=as_json),
        )
