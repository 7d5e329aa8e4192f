"""A measurement from the first question to the last result, as a stream of events."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from k31ctl.bench.ahead import fitted_source, judged, warmup_sizes, warmup_stage
from k31ctl.bench.check import Line, look
from k31ctl.bench.client import Client
from k31ctl.bench.driver import Driver
from k31ctl.bench.endpoint import tls_context
from k31ctl.bench.events import Checked, Event, Finished, Server, StageFinished, StageStarted
from k31ctl.bench.exchange import Exchange
from k31ctl.bench.gauges import summed_up
from k31ctl.bench.gpus import GpuMeter, gpu_meter, is_this_machine
from k31ctl.bench.interrupts import Interrupt, noted_interrupt
from k31ctl.bench.process import allow_connections, no_collection
from k31ctl.bench.prometheus import parse_metrics
from k31ctl.bench.prompts import Prompts
from k31ctl.bench.record import Record, file_digests, plain, writing
from k31ctl.bench.request import BenchRequest
from k31ctl.bench.result import StageResult
from k31ctl.bench.sampler import Sampler
from k31ctl.bench.saturation import why_enough
from k31ctl.bench.series import StageSeries, steady_state
from k31ctl.bench.server_metrics import answers, between
from k31ctl.bench.source import Form, Source
from k31ctl.bench.span import Span
from k31ctl.bench.stage import Sizes, Stage, doubled
from k31ctl.bench.tally import Row, Tally
from k31ctl.bench.trouble import TroubleError
from k31ctl.core.steady import Steady

_SCRAPE_S: Final = 2.0
_LEAST_GOOD: Final = 0.99


class Bench:
    """One run."""

    def __init__(
        self,
        request: BenchRequest,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._request, self._clock, self._now = request, clock, now
        self._results: list[StageResult] = []
        self._series: list[StageSeries] = []
        self._notes: list[str] = []
        self._tokens_from = ""
        self._has_metrics: bool | None = None
        self._meter: GpuMeter | None = None

    def run(self) -> Iterator[Event]:
        """Run it; raises EndpointError where the endpoint does not answer the first request."""
        request = self._request
        endpoint = request.endpoint
        is_http2 = endpoint.is_http2
        context = tls_context(request.environment, is_http2=is_http2) if endpoint.is_tls else None
        line = Line(endpoint, context)
        allow_connections(max(s.concurrency or request.most_in_flight for s in request.stages))
        with noted_interrupt() as interrupt:
            server = look(line, request.model)
            source = self._source(line, server)
            yield Checked(server=server, tokens_from=self._tokens_from, notes=tuple(self._notes))
            if not request.endpoint.is_proxied and is_this_machine(line.address[1][0]):
                self._meter = gpu_meter()
            record = Record(request.folder)
            record.begin(self._head(server))
            state = "failed"
            try:
                self._warm_up(line, source, interrupt)
                yield from self._all_stages(line, source, record, interrupt)
                state = "complete"
            finally:
                record.finish("interrupted" if interrupt.is_set else state, self._tail())
            yield Finished(
                server=server,
                stages=tuple(self._results),
                series=tuple(self._series),
                tokens_from=self._tokens_from,
                notes=tuple(self._notes),
                is_interrupted=interrupt.is_set,
                record=record.where,
            )

    def _head(self, server: Server) -> dict[str, Any]:
        """What a record begins with; all that it takes to do it again."""
        request = self._request
        return {
            "started": self._now().isoformat(timespec="seconds"),
            "inputs": dict(request.described),
            "files": file_digests(request.files),
            "server": plain(server),
            "tokens_from": self._tokens_from,
            "plan": request.plan,
        }

    def _tail(self) -> dict[str, Any]:
        return {"ended": self._now().isoformat(timespec="seconds"), "notes": self._notes}

    def _all_stages(
        self, line: Line, source: Source, record: Record, interrupt: Interrupt
    ) -> Iterator[Event]:
        total = None if self._request.seeks_saturation else len(self._request.stages)
        for number, stage in enumerate(self._stages(interrupt)):
            yield StageStarted(name=stage.name, number=number + 1, num_stages=total)
            with writing(self._request.folder):
                yield from self._stage(number, stage, line, source, record, interrupt)
            record.add_stage(plain(self._results[-1]), plain(self._series[-1]))

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
                waiting = [
                    doubled(
                        stage,
                        burstiness=request.burstiness,
                        sizes=request.sizes,
                        duration_s=request.duration_s,
                        random=Random(f"{request.seed}:{stage.name}:next"),
                    )
                ]

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
            sampler = Sampler(line if before else None, self._meter, clock=self._clock)
            sampler.begin()
            try:
                with no_collection():
                    for progress in driver.run():
                        record.flush()
                        yield progress
            finally:
                gpu = sampler.end(output_tokens=tally.num_tokens)
            samples = tuple(sampler.samples)
            series = tally.series(
                driver.span, name=stage.name, repeat=stage.repeat, samples=samples
            )
            result = tally.result(
                driver.span,
                client,
                stage=stage,
                most_in_flight=driver.most_in_flight,
                server_metrics=between(before, self._scraped(line)) if before else None,
                gauges=summed_up(samples),
                gpu=gpu,
                steady=_steady(stage, driver.span, series),
                is_whole=not interrupt.is_set,
            )
        finally:
            client.close()
            events.close()
            tokens.close()
        self._results.append(result)
        self._series.append(series)
        yield StageFinished(result=result, series=series)

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
        number = self._request.num_warmup
        if not number:
            return
        ended: list[Exchange] = []
        client = self._client(line)
        events, tokens = Record(None).gap_files(0)
        with events, tokens:
            driver = self._driver(
                warmup_stage(number, self._request.stages),
                client,
                source,
                Tally(events, tokens, None),
                lambda _, exchange: ended.append(exchange),
                interrupt,
                sizes=warmup_sizes(number, self._request.sizes),
            )
            for _ in driver.run():
                pass
        client.close()
        self._notes += judged(ended, where=line.endpoint.url, is_stopped=lambda: interrupt.is_set)

    def _source(self, line: Line, server: Server) -> Source:
        request = self._request
        fitted = fitted_source(
            line,
            server,
            form=Form(model=server.model, is_chat=request.is_chat, extra=request.extra),
            prompts=Prompts(seed=request.seed, shared_fraction=request.shared_fraction),
            prompt_tokens=request.sizes.prompt_tokens,
            rows=request.lines,
            num_turns=request.num_turns,
            think_s=request.think_s,
            images=request.images,
            num_images=request.num_images,
        )
        self._tokens_from = fitted.tokens_from
        self._notes += fitted.notes
        return fitted.source


def _steady(stage: Stage, span: Span, series: StageSeries) -> Steady | None:
    """Whether a stage came to rest; None where its load changes by design."""
    is_closed = stage.concurrency is not None
    if not is_closed and stage.rate is None:
        return None
    full_s = span.full.duration_s if span.full else None
    return steady_state(series, is_closed=is_closed, full_s=full_s)
