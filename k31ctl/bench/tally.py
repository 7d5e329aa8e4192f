"""Adds up the requests of one stage as they end, and says what they come to."""

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import IO, Final

from k31ctl.bench.client import Client
from k31ctl.bench.exchange import Exchange
from k31ctl.bench.gauges import Gauges, Sample
from k31ctl.bench.gpus import GpuUse
from k31ctl.bench.health import health, spread
from k31ctl.bench.pool import FloatPool
from k31ctl.bench.result import Rates, ServerMetrics, Spread, StageResult, Tokens
from k31ctl.bench.series import QUANTILES, StageSeries, Timeline, quantiles
from k31ctl.bench.span import Span
from k31ctl.bench.stage import Stage
from k31ctl.bench.trouble import Trouble
from k31ctl.core.slo import Slo
from k31ctl.core.steady import Steady
from k31ctl.values import frozen

_MOST_DETAIL: Final = 200
_FULL_LENGTHS: Final = 2  # requests, one after another, that full load has to last for


@frozen
class Row:
    """One request as the record has it; times in seconds from the start of its stage."""

    number: int
    user: int
    due_s: float
    since_s: float
    sent_s: float
    ttft_s: float | None
    reasoning_s: float | None
    answer_s: float | None
    last_s: float | None
    ended_s: float
    prompt_tokens_asked: int
    output_tokens_asked: int
    prompt_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    cached_tokens: int | None
    events: int
    finish_reason: str | None
    status: int
    error: str | None
    detail: str


class Tally:
    """Counts one stage; gaps go to the files, and no answer is kept."""

    def __init__(self, event_gaps: IO[bytes], token_gaps: IO[bytes], slo: Slo | None) -> None:
        self._event_gaps, self._token_gaps = FloatPool(event_gaps), FloatPool(token_gaps)
        self._num_gaps, self._per_event = array("q"), array("d")
        self._limits_s: dict[str, float] = {}
        for limit in slo.limits if slo else ():
            self._limits_s[limit.metric] = max(
                self._limits_s.get(limit.metric, 0.0), limit.at_most_s
            )
        self._has_slo = slo is not None
        self._ttft, self._reasoning, self._answer = array("d"), array("d"), array("d")
        self._tpot, self._e2e, self._late = array("d"), array("d"), array("d")
        self._timeline = Timeline()
        self._kinds: Counter[str] = Counter()
        self._details: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self.completed = self.errors = 0

    def add(self, exchange: Exchange, *, start_s: float) -> Row:
        """Count a request that has ended, and return its row."""
        usage, events = exchange.deltas.usage, exchange.num_events
        tokens = usage.completion_tokens if usage else None
        self._late.append(max(exchange.sent_s - exchange.due_s, 0.0))
        if exchange.error == Trouble.ABANDONED:
            self._counts["abandoned"] += 1
        elif exchange.error is not None:
            self.errors += 1
            self._kinds[exchange.error] += 1
            self._details.setdefault(exchange.error, exchange.detail[:_MOST_DETAIL])
        else:
            self._answered(exchange, tokens)
        if exchange.error != Trouble.ABANDONED:
            self._timeline.add(
                sent_s=exchange.sent_s,
                first_s=exchange.first_event_s,
                last_s=exchange.last_s,
                ended_s=exchange.ended_s,
                tokens=tokens or events,
                ttft_s=exchange.first_event_s - exchange.since_s,
                is_ok=exchange.error is None,
            )
        since_s = exchange.since_s

        def since(moment_s: float) -> float | None:
            return moment_s - since_s if moment_s else None

        return Row(
            number=exchange.order.number,
            user=exchange.order.user,
            due_s=exchange.due_s - start_s,
            since_s=since_s - start_s,
            sent_s=exchange.sent_s - start_s,
            ttft_s=since(exchange.first_event_s),
            reasoning_s=since(exchange.first_reasoning_s),
            answer_s=since(exchange.first_answer_s),
            last_s=since(exchange.last_s),
            ended_s=exchange.ended_s - start_s,
            prompt_tokens_asked=exchange.order.prompt_tokens,
            output_tokens_asked=exchange.order.output_tokens,
            prompt_tokens=usage.prompt_tokens if usage else None,
            output_tokens=tokens,
            reasoning_tokens=usage.reasoning_tokens if usage else None,
            cached_tokens=usage.cached_tokens if usage else None,
            events=events,
            finish_reason=exchange.deltas.finish_reason,
            status=exchange.status,
            error=exchange.error,
            detail=exchange.detail,
        )

    def _answered(self, exchange: Exchange, told: int | None) -> None:
        self.completed += 1
        counts, events, usage = self._counts, exchange.num_events, exchange.deltas.usage
        tokens = told or events
        ttft_s = exchange.first_event_s - exchange.since_s
        e2e_s = exchange.last_s - exchange.since_s
        self._ttft.append(ttft_s)
        self._e2e.append(e2e_s)
        if exchange.first_reasoning_s:
            self._reasoning.append(exchange.first_reasoning_s - exchange.since_s)
        if exchange.first_answer_s:
            self._answer.append(exchange.first_answer_s - exchange.since_s)
        tpot_s = None
        if tokens > 1 and events > 1:
            tpot_s = (exchange.last_s - exchange.first_event_s) / (tokens - 1)
            self._tpot.append(tpot_s)
        gaps = exchange.gaps
        self._event_gaps.extend(gaps)
        self._num_gaps.append(len(gaps))
        self._per_event.append(max(tokens / events, 1.0))
        counts["events"] += events
        counts["tokens"] += tokens
        counts["prompt"] += usage.prompt_tokens if usage else exchange.order.prompt_tokens
        counts["without_usage"] += usage is None
        asked = exchange.order.output_tokens
        counts["disagreeing"] += told is not None and not events <= told <= asked
        counts["without_done"] += not exchange.deltas.is_done
        counts["comments"] += exchange.num_comments
        if usage and usage.reasoning_tokens is not None:
            counts["reasoning"] += usage.reasoning_tokens
            counts["tell_reasoning"] += 1
        if usage and usage.cached_tokens is not None:
            counts["cached"] += usage.cached_tokens
            counts["tell_cached"] += 1
        found = {"ttft": ttft_s, "e2e": e2e_s, "tpot": tpot_s, "itl": max(gaps, default=None)}
        counts["good"] += self._is_good(found)

    def _is_good(self, found_s: Mapping[str, float | None]) -> bool:
        for metric, limit_s in self._limits_s.items():
            value = found_s[metric]
            if value is not None and value > limit_s:
                return False
        return True

    def result(
        self,
        span: Span,
        client: Client,
        *,
        stage: Stage,
        most_in_flight: int,
        server_metrics: ServerMetrics | None,
        gauges: Gauges | None,
        gpu: GpuUse | None,
        steady: Steady | None,
        is_whole: bool,
    ) -> StageResult:
        """Return what the stage came to."""
        counts, duration_s = self._counts, max(span.end_s - span.start_s, 1e-9)
        rates = self._rates(span, client, is_closed=stage.concurrency is not None)
        itl, ttft = self._event_gaps.spread(), spread(self._ttft)
        return StageResult(
            name=stage.name,
            concurrency=stage.concurrency,
            rate=stage.rate,
            repeat=stage.repeat,
            requests=self.completed + self.errors,
            completed=self.completed,
            errors=self.errors,
            abandoned=counts["abandoned"],
            errors_by_kind=dict(sorted(self._kinds.items())),
            error_details=dict(sorted(self._details.items())),
            duration_s=duration_s,
            request_rate=rates.request_rate,
            output_tok_s=rates.output_tok_s,
            total_tok_s=rates.total_tok_s,
            rates_over=rates.over,
            rates_over_s=rates.duration_s,
            tokens=self._tokens(),
            ttft_s=ttft,
            ttft_reasoning_s=spread(self._reasoning),
            ttft_answer_s=spread(self._answer),
            itl_s=itl,
            itl_token_s=self._token_spread(itl),
            tpot_s=spread(self._tpot),
            e2e_s=spread(self._e2e),
            goodput=counts["good"] / max(self.completed, 1) * rates.request_rate
            if self._has_slo
            else None,
            good_fraction=self._good_fraction(),
            arrival_lag_s=spread(self._late),
            most_in_flight=most_in_flight,
            num_connections=client.num_connections,
            num_resent=client.num_resent,
            num_comments=counts["comments"],
            num_without_done=counts["without_done"],
            client=health(span, client, ttft=ttft, itl=itl),
            server_metrics=server_metrics,
            gauges=gauges,
            gpu=gpu,
            steady=steady,
            is_whole=is_whole,
        )

    @property
    def num_tokens(self) -> int:
        """Output tokens of the answered requests so far."""
        return self._counts["tokens"]

    def series(
        self, span: Span, *, name: str, repeat: int, samples: tuple[Sample, ...]
    ) -> StageSeries:
        """Return the stage as curves."""
        bin_s, bins = self._timeline.bins(start_s=span.start_s, end_s=span.end_s)
        return StageSeries(
            name=name,
            repeat=repeat,
            ttft_s=quantiles(self._ttft),
            itl_s=self._event_gaps.curve(QUANTILES),
            tpot_s=quantiles(self._tpot),
            e2e_s=quantiles(self._e2e),
            bin_s=bin_s,
            bins=bins,
            samples=samples,
        )

    def _token_spread(self, itl: Spread | None) -> Spread | None:
        """Each gap divided by the tokens that an event of its answer carried on average."""
        if all(per_event == 1 for per_event in self._per_event):
            return itl
        gaps = self._event_gaps.runs(self._num_gaps)
        for run, per_event in zip(gaps, self._per_event, strict=True):
            self._token_gaps.extend(array("f", [gap / per_event for gap in run]))
        return self._token_gaps.spread()

    def _good_fraction(self) -> float | None:
        total = self.completed + self.errors
        return self._counts["good"] / total if self._has_slo and total else None

    def _tokens(self) -> Tokens:
        counts = self._counts
        return Tokens(
            prompt=counts["prompt"],
            output=counts["tokens"],
            output_source="events" if counts["without_usage"] else "usage",
            reasoning=counts["reasoning"] if counts["tell_reasoning"] else None,
            cached=counts["cached"] if counts["tell_cached"] else None,
            events=counts["events"],
            num_without_usage=counts["without_usage"],
            num_disagreeing=counts["disagreeing"],
        )

    def _rates(self, span: Span, client: Client, *, is_closed: bool) -> Rates:
        """Rates over the full load of a closed loop that is long enough, else over everything.

        The tokens of requests that were under way at its end count up to there; so do requests, by
        the share of their tokens. Tokens of failed requests are left out in proportion.
        """
        counts, full = self._counts, span.full
        whole_s = max(span.end_s - span.start_s, 1e-9)
        each_s = sum(self._e2e) / len(self._e2e) if self._e2e else 0.0
        if not (is_closed and full and each_s and full.duration_s >= _FULL_LENGTHS * each_s):
            return Rates(
                over="whole run",
                duration_s=whole_s,
                request_rate=self.completed / whole_s,
                output_tok_s=counts["tokens"] / whole_s,
                total_tok_s=(counts["tokens"] + counts["prompt"]) / whole_s,
            )
        share = full.events / max(client.num_events, 1) / full.duration_s
        return Rates(
            over="full load",
            duration_s=full.duration_s,
            request_rate=self.completed * share,
            output_tok_s=counts["tokens"] * share,
            total_tok_s=(counts["tokens"] + counts["prompt"]) * share,
        )
