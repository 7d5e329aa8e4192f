"""A measurement from the first question to the last result, as a stream of events."""

import gc
import resource
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

from k31ctl.bench.check import Line, TokenCounter, look
from k31ctl.bench.client import Client, Limits
from k31ctl.bench.driver import Driver
from k31ctl.bench.endpoint import Endpoint, tls_context
from k31ctl.bench.events import Checked, Event, Finished, Server, StageFinished, StageStarted
from k31ctl.bench.exchange import Exchange
from k31ctl.bench.interrupts import Interrupt, noted_interrupt
from k31ctl.bench.prompts import Prompts
from k31ctl.bench.record import Record
from k31ctl.bench.result import StageResult
from k31ctl.bench.saturation import why_enough
from k31ctl.bench.server_metrics import answers, between, parse_metrics
from k31ctl.bench.source import Dataset, Form, Sessions, Source, Synthetic
from k31ctl.bench.stage import Sizes, Stage, closed_stage, doubled
from k31ctl.bench.tally import Row, Tally
from k31ctl.bench.trouble import TroubleError
from k31ctl.catalog.dataset import DatasetRow
from k31ctl.core.slo import Slo
from k31ctl.errors import EndpointError, InputError
from k31ctl.values import frozen

_SPARE_FILES: Final = 64
_SCRAPE_S: Final = 2.0
_PROBE_TOKENS: Final = 4
_LEAST_GOOD: Final = 0.99


@frozen
class BenchRequest:
    """What is measured, and how.

    ``lines`` are rows of a data set instead of synthetic prompts; ``num_turns`` above 1 makes
    agents' sessions of them. ``seeks_saturation`` goes on with twice the users as long as that
    gives more; no stage begins after ``budget_s``. ``num_warmup`` requests go ahead and are not
    counted. ``plan`` is the document that the run is held against; the record keeps it.
    """

    endpoint: Endpoint
    environment: Mapping[str, str]
    model: str | None
    is_chat: bool
    stages: tuple[Stage, ...]
    sizes: Sizes
    shared_fraction: float
    lines: tuple[DatasetRow, ...]
    num_turns: int
    think_s: float
    extra: Mapping[str, Any]
    limits: Limits
    most_in_flight: int
    num_warmup: int
    seeks_saturation: bool
    budget_s: float
    seed: int
    slo: Slo | None
    folder: Path | None
    plan: Mapping[str, Any] | None
    described: Mapping[str, Any]


class Bench:
    """One run."""

    def __init__(self, request: BenchRequest, *, clock: Callable[[], float]) -> None:
        self._request, self._clock = request, clock
        self._results: list[StageResult] = []
        self._notes: list[str] = []
        self._tokens_from = ""
        self._has_metrics: bool | None = None

    def run(self) -> Iterator[Event]:
        """Run it; raises EndpointError where the endpoint does not answer the first request."""
        request = self._request
        context = tls_context(request.environment) if request.endpoint.is_tls else None
        line = Line(request.endpoint, context)
        _allow_connections(max(s.concurrency or request.most_in_flight for s in request.stages))
        with noted_interrupt() as interrupt:
            server = look(line, request.model)
            source = self._source(line, server)
            yield Checked(server=server, tokens_from=self._tokens_from, notes=tuple(self._notes))
            record = Record(request.folder)
            record.begin(
                {
                    "inputs": dict(request.described),
                    "server": _plain(server),
                    "plan": request.plan,
                }
            )
            self._warm_up(line, source, interrupt)
            for number, stage in enumerate(self._stages(interrupt)):
                total = None if request.seeks_saturation else len(request.stages)
                yield StageStarted(name=stage.name, number=number + 1, num_stages=total)
                yield from self._stage(number, stage, line, source, record, interrupt)
            record.finish(
                "interrupted" if interrupt.is_set else "complete",
                [_plain(result) for result in self._results],
            )
            yield Finished(
                server=server,
                stages=tuple(self._results),
                tokens_from=self._tokens_from,
                notes=tuple(self._notes),
                is_interrupted=interrupt.is_set,
                record=record.where,
            )

    def _stages(self, interrupt: Interrupt) -> Iterator[Stage]:
        """Yield what runs next, as long as nothing speaks against it."""
        request, begun_s = self._request, self._clock()
        waiting = list(request.stages)
        while waiting and not interrupt.is_set:
            stage = waiting.pop(0)
            if self._results and self._clock() - begun_s >= request.budget_s:
                left = ", ".join(s.name for s in (stage, *waiting))
                self._notes.append(f"--time-budget was used up before: {left}")
                return
            yield stage
            if request.seeks_saturation and not interrupt.is_set:
                reason = why_enough(self._results, least_good_fraction=_LEAST_GOOD)
                if reason is not None:
                    self._notes.append(f"saturation: {reason}")
                    return
                waiting = [doubled(stage)]

    def _stage(
        self,
        number: int,
        stage: Stage,
        line: Line,
        source: Source,
        record: Record,
        interrupt: Interrupt,
    ) -> Iterator[Event]:
        events, tokens = record.gap_files(number)
        tally = Tally(events, tokens, self._request.slo)
        client = self._client(line)
        try:
            before = self._scraped(line)
            client.open_ahead(min(stage.concurrency or 1, self._request.most_in_flight))
            driver = self._driver(stage, client, source, tally, record.keep, interrupt)
            with _no_collection():
                for progress in driver.run():
                    record.flush()
                    yield progress
            result = tally.result(
                driver.span,
                client,
                name=stage.name,
                concurrency=stage.concurrency,
                rate=stage.rate,
                repeat=stage.repeat,
                most_in_flight=driver.most_in_flight,
                server_metrics=between(before, self._scraped(line)) if before else None,
                is_whole=not interrupt.is_set,
            )
        finally:
            client.close()
            events.close()
            tokens.close()
        self._results.append(result)
        yield StageFinished(result=result)

    def _driver(
        self,
        stage: Stage,
        client: Client,
        source: Source,
        tally: Tally,
        keep: Callable[[Row, Exchange], None],
        interrupt: Interrupt,
        *,
        sizes: Sizes | None = None,
    ) -> Driver:
        request = self._request
        return Driver(
            stage,
            client=client,
            source=source,
            sizes=sizes or request.sizes,
            tally=tally,
            keep=keep,
            most_in_flight=request.most_in_flight,
            random=Random(f"{request.seed}:{stage.name}:{stage.repeat}"),
            interrupt=interrupt,
            clock=self._clock,
        )

    def _scraped(self, line: Line) -> dict[str, float]:
        """The server's metrics now; nothing where it has none, and then it is not asked again."""
        if self._has_metrics is False:
            return {}
        try:
            answer = line.ask("GET", f"{line.endpoint.root}/metrics", timeout_s=_SCRAPE_S)
            found = parse_metrics(answer.body.decode("utf-8", "replace"))
        except TroubleError:
            found = {}
        self._has_metrics = answers(found)
        return found

    def _client(self, line: Line) -> Client:
        return Client(
            line.endpoint,
            address=line.address,
            context=line.context,
            limits=self._request.limits,
            clock=self._clock,
        )

    def _warm_up(self, line: Line, source: Source, interrupt: Interrupt) -> None:
        """Send requests that are not counted; raises EndpointError where the first one fails."""
        if not self._request.num_warmup:
            return
        ended: list[Exchange] = []
        users = min(
            self._request.num_warmup, max((s.concurrency or 1) for s in self._request.stages)
        )
        stage = closed_stage(
            users, duration_s=None, num_requests=self._request.num_warmup, repeat=-1
        )
        client = self._client(line)
        events, tokens = Record(None).gap_files(0)
        with events, tokens:
            tally = Tally(events, tokens, None)
            sizes = self._request.sizes
            if self._request.num_warmup == 1:  # only to see that it is answered
                sizes = Sizes(
                    prompt_tokens=sizes.prompt_tokens,
                    output_tokens=min(sizes.output_tokens, _PROBE_TOKENS),
                    spread_fraction=0.0,
                )
            driver = self._driver(
                stage,
                client,
                source,
                tally,
                lambda _, exchange: ended.append(exchange),
                interrupt,
                sizes=sizes,
            )
            for _ in driver.run():
                pass
        client.close()
        failed = [exchange for exchange in ended if exchange.error is not None]
        if failed and len(failed) == len(ended) and not interrupt.is_set:
            raise EndpointError(
                f"no request was answered: {failed[0].error}: {failed[0].detail.strip()[:200]}",
                where=line.endpoint.url,
                remedy="mend what the server says; --warmup 0 measures all the same",
            )
        if failed:
            self._notes.append(f"{len(failed)} of {len(ended)} warm-up requests failed")

    def _source(self, line: Line, server: Server) -> Source:
        request = self._request
        form = Form(model=server.model, is_chat=request.is_chat, extra=request.extra)
        if request.lines:
            self._tokens_from = "the data set's own texts"
            return Dataset(line.endpoint, form, request.lines)
        prompts = self._prompts(line, server)
        if request.num_turns > 1:
            return Sessions(
                line.endpoint,
                form,
                prompts,
                num_turns=request.num_turns,
                think_s=request.think_s,
            )
        return Synthetic(line.endpoint, form, prompts)

    def _prompts(self, line: Line, server: Server) -> Prompts:
        request = self._request
        prompts = Prompts(seed=request.seed, shared_fraction=request.shared_fraction)
        counter = TokenCounter(line, server.model)
        off = None
        if counter.is_there:
            off = prompts.calibrate(request.sizes.prompt_tokens, counter.count)
        if off is None:
            self._tokens_from = "a guess of one token a word (the endpoint has no /tokenize)"
        else:
            self._tokens_from = "the endpoint's /tokenize, without the chat format around them"
            if off:
                self._notes.append(f"prompts are {off:+d} tokens off what was asked for")
        return prompts


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the garbage collector from stopping the clock; what runs here makes no cycles."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _allow_connections(count: int) -> None:
    """Raise the limit of open files; raises InputError where the system does not let us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and count + _SPARE_FILES > hard:
        raise InputError(
            f"{count:,} connections need more open files than the {hard:,} allowed",
            where="this machine",
            remedy="lower the concurrency or --most-in-flight, or raise ulimit -n",
        )
    if soft != resource.RLIM_INFINITY and soft < count + _SPARE_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count + _SPARE_FILES, hard))


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    match value:
        case Mapping():
            return {str(key): _plain(entry) for key, entry in value.items()}
        case list() | tuple():
            return [_plain(entry) for entry in value]
        case _ if hasattr(value, "__dataclass_fields__"):
            return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
