"""Errors of k31ctl and of aiconfigurator over the same published measurements of Kimi K3.

Run ``python benchmarks/against_aiconfigurator.py --python PATH``, where PATH is an interpreter into
which ``pip install aiconfigurator==0.12.0`` was done (it wants an environment of its own). Without
the option, AICONFIGURATOR_PYTHON names it, or the program ``aiconfigurator`` is looked up on PATH.
Where there is none, or where it refuses a point, the reason is printed in one line and k31ctl's
own table still comes.

k31ctl was fitted to these measurements. The column *unseen* is what it says when it is fitted
without the source of the row, which is what a comparison with a tool that was not should look at.
"""

import statistics
import sys
import time
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aiconfigurator_calls import PEER, predicted_by_peer

from k31ctl.catalog.measurements import load_trials, other_tables
from k31ctl.catalog.speed import load_speed
from k31ctl.catalog.store import Kind, Store, default_folders, read_text
from k31ctl.catalog.yaml_text import parse_yaml
from k31ctl.core.measurement import Measurement
from k31ctl.core.validation import Comparison, validation

TABLES = ("kimi-k3", "kimi-k3-more")
# Two prompts count as the same load where they differ by no more than this.
LIKE_PROMPTS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A measured figure, what k31ctl says (seen, unseen) and what the peer says, if it does."""

    comparison: Comparison
    peer: float | None

    @property
    def ratios(self) -> tuple[float, float | None, float | None]:
        """Predicted over measured: k31ctl, k31ctl unseen, the peer."""
        one = self.comparison
        unseen = None if one.cross_error is None else 1 + one.cross_error
        return 1 + one.error, unseen, None if self.peer is None else self.peer / one.measured


def number(value: float | None) -> str:
    """Three figures, or a dash."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"  # noqa: PLR2004


def ratio(value: float | None) -> str:
    """Two decimals, or a dash."""
    return "-" if value is None else f"{value:.2f}"


def say(text: str = "") -> None:
    """One line of the answer."""
    sys.stdout.write(text + "\n")


def show_lines(lines: Iterable[Line]) -> None:
    """Every figure with both tools' answers."""
    say("| measurement | quantity | measured | k31ctl | ratio | unseen | aiconfigurator | ratio |")
    say("|---|---|---:|---:|---:|---:|---:|---:|")
    for line in lines:
        one = line.comparison
        seen, unseen, peer = line.ratios
        star = "" if one.scored else " *"
        say(
            f"| {one.measurement.id} | {one.quantity}{star} | {number(one.measured)} "
            f"| {number(one.predicted.value)} | {ratio(seen)} | {ratio(unseen)} "
            f"| {number(line.peer)} | {ratio(peer)} |"
        )


def show_errors(lines: Sequence[Line]) -> None:
    """Mean and worst absolute error of each tool."""
    scored = [line for line in lines if line.comparison.scored]
    first_tokens = [line for line in lines if line.comparison.quantity == "ttft_ms"]
    shared = [line for line in scored if line.peer is not None]
    tpot = [line for line in shared if line.comparison.quantity == "tpot_ms"]
    rates = [line for line in shared if line.comparison.quantity.endswith("tok_s")]
    say("| over | tool | figures | mean error | worst error |")
    say("|---|---|---:|---:|---:|")
    for over, chosen in (
        ("what both can do", shared),
        ("of these, TPOT", tpot),
        ("of these, output tokens/s", rates),
        ("all that each can do", scored),
        ("TTFT, what both can do", [line for line in first_tokens if line.peer is not None]),
    ):
        for place, tool in enumerate(("k31ctl", "k31ctl, unseen", PEER)):
            errors = [abs(r - 1) for line in chosen if (r := line.ratios[place]) is not None]
            if errors:
                say(f"| {over} | {tool} | {len(errors)} | {statistics.fmean(errors):.1%} "
                    f"| {max(errors):.1%} |")  # fmt: skip


def show_orders(lines: Sequence[Line]) -> None:
    """TP8xPP2 over TP16 at the same load: as measured, and as each tool has it."""
    rates = [line for line in lines if line.comparison.quantity == "out_tok_s"]
    say("| TP8xPP2 | TP16 | measured ratio | k31ctl | unseen | aiconfigurator |")
    say("|---|---|---:|---:|---:|---:|")
    for two in rates:
        for one in rates:
            a, b = two.comparison.measurement, one.comparison.measurement
            if _rivals(a, b):
                measured = two.comparison.measured / one.comparison.measured
                said = [
                    ratio(None if x is None or y is None else measured * x / y)
                    for x, y in zip(two.ratios, one.ratios, strict=True)
                ]
                say(f"| {a.id} | {b.id} | {measured:.2f} | {' | '.join(said)} |")


def _rivals(pipelined: Measurement, wide: Measurement) -> bool:
    one, two = pipelined.workload, wide.workload
    return (
        pipelined.layout.startswith("TP8xPP2")
        and wide.layout.startswith("TP16")
        and (pipelined.source, pipelined.hardware, pipelined.engine, one.concurrency)
        == (wide.source, wide.hardware, wide.engine, two.concurrency)
        and abs(one.prompt_tokens / two.prompt_tokens - 1) <= LIKE_PROMPTS
    )


def options_of() -> Namespace:
    """What was asked on the command line."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--python", metavar="PATH", help="interpreter that has aiconfigurator")
    parser.add_argument("--more", action="store_true", help=f"also the table {TABLES[1]}")
    parser.add_argument(
        "--batch",
        choices=("asked", "held"),
        default="asked",
        help="give aiconfigurator the concurrency as published, or no more than the cache held",
    )
    parser.add_argument(
        "--context-tokens",
        choices=("prompt", "chunk"),
        default="prompt",
        help="its budget of prompt tokens a step: its own default, or the engine's chunk",
    )
    parser.add_argument(
        "--data", metavar="VERSION", help="its --perf-db-version: current, next or a number"
    )
    parser.add_argument(
        "--cross",
        action=BooleanOptionalAction,
        default=True,
        help="fit k31ctl without each source in turn; takes a minute",
    )
    return parser.parse_args()


def main() -> None:
    """Ask both, and print tables of figures, errors and layout orders."""
    options = options_of()
    store = Store(default_folders())
    speed = load_speed(store)
    names = TABLES if options.more else TABLES[:1]
    start = time.perf_counter()
    trials = {name: load_trials(store, name, speed)[0] for name in names}
    plain = {name: validation(trials[name], (), speed, cross=False) for name in names}
    seconds = time.perf_counter() - start
    paths = [store.paths(Kind.MEASUREMENTS)[name] for name in names]
    raw: list[Any] = [parse_yaml(read_text(path), where=str(path)) for path in paths]
    rows = {row["id"]: row for table in raw for row in table["rows"]}
    every = [trial for name in names for trial in trials[name]]
    peer, notes = predicted_by_peer(every, rows, options)
    lines: list[Line] = []
    for name in names:
        found = plain[name]
        if options.cross:
            others = [t for o in other_tables(store, name) for t in load_trials(store, o, speed)[0]]
            found = validation(trials[name], others, speed, cross=True)
        table = [
            Line(comparison=c, peer=peer.get((c.measurement.id, c.quantity)))
            for c in found.comparisons
        ]
        lines += table
        say(f"## {name}\n")
        show_lines(table)
        say("\nRatio is predicted over measured; * is shown and not scored.\n")
        show_errors(table)
        say()
    say("## Order of layouts\n")
    show_orders(lines)
    say("\n## How it went\n")
    say(f"k31ctl: {seconds:.1f} s for {len(every)} measurements, reading included, fits not")
    for note in notes:
        say(note)


if __name__ == "__main__":
    main()
