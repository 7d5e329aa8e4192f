"""What happens ahead of the first stage: prompts are fitted, and some requests are answered."""

from collections.abc import Callable, Sequence
from typing import Final

from k31ctl.bench.check import Line, TokenCounter
from k31ctl.bench.events import Server
from k31ctl.bench.exchange import Exchange
from k31ctl.bench.images import Images
from k31ctl.bench.prompts import Prompts
from k31ctl.bench.source import Dataset, Form, Sessions, Source, Synthetic
from k31ctl.bench.stage import Sizes, Stage, closed_stage
from k31ctl.catalog.dataset import DatasetRow
from k31ctl.errors import EndpointError
from k31ctl.values import frozen

_PROBE_TOKENS: Final = 4


@frozen
class Fitted:
    """Where requests come from, how their lengths are known, and what to say about it."""

    source: Source
    tokens_from: str
    notes: tuple[str, ...]


def fitted_source(
    line: Line,
    server: Server,
    *,
    form: Form,
    prompts: Prompts,
    prompt_tokens: int,
    rows: Sequence[DatasetRow],
    num_turns: int,
    think_s: float,
    images: Images | None,
    num_images: int,
) -> Fitted:
    """Return the source of requests, its prompts fitted with the endpoint's own tokenizer."""
    if rows:
        source: Source = Dataset(line.endpoint, form, rows)
        return Fitted(source=source, tokens_from="the data set's own texts", notes=())
    counter = TokenCounter(line, server.model)
    off = prompts.calibrate(prompt_tokens, counter.count) if counter.is_there else None
    if off is None:
        tokens_from = "a guess of one token a word (the endpoint has no /tokenize)"
    else:
        tokens_from = "the endpoint's /tokenize, without the chat format around them"
    if num_turns > 1:
        source = Sessions(line.endpoint, form, prompts, num_turns=num_turns, think_s=think_s)
    else:
        source = Synthetic(line.endpoint, form, prompts, images=images, num_images=num_images)
    if images is not None:
        tokens_from += "; images come on top"
    notes = (f"prompts are {off:+d} tokens off what was asked for",) if off else ()
    return Fitted(source=source, tokens_from=tokens_from, notes=notes)


def warmup_stage(num_requests: int, stages: Sequence[Stage]) -> Stage:
    """Return the requests that go ahead: no more at a time than the busiest stage has users."""
    users = min(num_requests, max((stage.concurrency or 1) for stage in stages))
    return closed_stage(users, duration_s=None, num_requests=num_requests, repeat=-1)


def warmup_sizes(num_requests: int, sizes: Sizes) -> Sizes:
    """Return the lengths of requests that go ahead; a single one is only to see an answer."""
    if num_requests > 1:
        return sizes
    return Sizes(
        prompt_tokens=sizes.prompt_tokens,
        output_tokens=min(sizes.output_tokens, _PROBE_TOKENS),
        spread_fraction=0.0,
    )


def judged(ended: Sequence[Exchange], *, where: str, is_stopped: Callable[[], bool]) -> list[str]:
    """Say how many requests ahead failed; raises EndpointError where none was answered."""
    failed = [exchange for exchange in ended if exchange.error is not None]
    if failed and len(failed) == len(ended) and not is_stopped():
        raise EndpointError(
            f"no request was answered: {failed[0].error}: {failed[0].detail.strip()[:200]}",
            where=where,
            remedy="mend what the server says; --warmup 0 measures all the same",
        )
    return [f"{len(failed)} of {len(ended)} warm-up requests failed"] if failed else []
