"""How often ``bench --baseline --max-regression 5%`` fails where it should, and where not.

    python benchmarks/gate_power.py --trials 2000
    python benchmarks/gate_power.py --before a/* --after b/*

The first draws repeats from models of noise: runs of the same service against each other, and runs
with TPOT 10 % up. The second draws them from the stages of real records, which were measured on a
service before and after a change, without putting any back. Each trial is a whole comparison of
all judged figures, as the command makes it.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import exp, sqrt
from pathlib import Path
from random import Random

from k31ctl.bench.baseline import regressions
from k31ctl.bench.compare import FAILED, compare
from k31ctl.bench.past import PastRun, PastStage, read_run

ALLOWED = 0.05
Noise = Callable[[Random, int], list[float]]
# Share of the common slowness of a repeat that each figure feels, and its own noise beside it, in
# units of the model's noise; p99 of few requests is far noisier than a mean over all tokens.
FIGURES = {
    "output_tok_s": (-1.0, 0.2),
    "ttft_s.p50": (1.0, 2.0),
    "ttft_s.p99": (1.0, 8.0),
    "itl_s.p99": (1.0, 12.0),
    "tpot_s.mean": (1.0, 0.2),
    "e2e_s.mean": (1.0, 0.2),
}


def normal(random: Random, repeats: int) -> list[float]:
    """Independent repeats."""
    return [random.gauss(0, 1) for _ in range(repeats)]


def heavy(random: Random, repeats: int) -> list[float]:
    """Student's t with 3 degrees of freedom, scaled to a standard deviation of 1."""
    return [
        random.gauss(0, 1) / sqrt(random.gammavariate(1.5, 2) / 3) / sqrt(3) for _ in range(repeats)
    ]


def outliers(random: Random, repeats: int) -> list[float]:
    """One repeat in ten is slower by six standard deviations of the others."""
    return [random.gauss(0, 1) + (6 if random.random() < 0.1 else 0) for _ in range(repeats)]  # noqa: PLR2004


def drifting(random: Random, repeats: int) -> list[float]:
    """Each repeat is half as the one before."""
    found = [random.gauss(0, 1)]
    for _ in range(repeats - 1):
        found.append(0.5 * found[-1] + sqrt(0.75) * random.gauss(0, 1))
    return found


NOISES: dict[str, Noise] = {
    "normal": normal,
    "heavy tails": heavy,
    "outliers": outliers,
    "drifting": drifting,
}


def run_of(
    random: Random,
    *,
    noise: Noise,
    spread: float,
    slower: float,
    repeats: int,
    stages: Sequence[str],
) -> PastRun:
    """Return a run whose TPOT is ``slower`` times that of the service, with noise."""
    found = []
    for name in stages:
        common = noise(random, repeats)
        own = {figure: noise(random, repeats) for figure in FIGURES}
        for repeat in range(repeats):
            figures = {FAILED: 0.0}
            for figure, (share, width) in FIGURES.items():
                feels = share if figure in ("output_tok_s", "tpot_s.mean", "e2e_s.mean") else 0.0
                at = spread * (share * common[repeat] + width * own[figure][repeat])
                figures[figure] = exp(at) * slower**feels
            found.append(stage(name, repeat, figures))
    return run(found)


def stage(name: str, repeat: int, figures: dict[str, float]) -> PastStage:
    """Return a stage of these figures."""
    return PastStage(
        name=name,
        repeat=repeat,
        concurrency=8,
        rate=None,
        requests=100,
        errors=0,
        is_valid=True,
        is_whole=True,
        figures=figures,
    )


def run(stages: Sequence[PastStage]) -> PastRun:
    """Return a run of these stages."""
    return PastRun(
        where="simulated",
        state="complete",
        inputs={},
        files=(),
        server={},
        made_with={},
        stages=tuple(stages),
        whole={},
    )


def fails(before: PastRun, after: PastRun, *, most: float = ALLOWED) -> bool:
    """Whether the gate fails."""
    return bool(regressions(compare(before, after), most=most))


def failures(
    random: Random,
    *,
    noise: Noise,
    spread: float,
    slower: float,
    trials: int,
    repeats: int = 5,
    stages: Sequence[str] = ("concurrency 8",),
    most: float = ALLOWED,
) -> int:
    """Return in how many trials the gate fails."""

    def one(slower: float) -> PastRun:
        return run_of(
            random, noise=noise, spread=spread, slower=slower, repeats=repeats, stages=stages
        )

    return sum(fails(one(1.0), one(slower), most=most) for _ in range(trials))


def draws(paths: Sequence[Path], random: Random, repeats: int) -> Iterator[list[PastRun]]:
    """Yield two runs at a time of real stages, none twice in the pair."""
    whole = [s for path in paths for s in read_run(path).stages if s.is_whole]
    for _ in count():
        drawn = random.sample(whole, 2 * repeats)
        yield [run(drawn[:repeats]), run(drawn[repeats:])]


def simulated(trials: int, seed: int) -> None:
    """Print how often the gate fails on models of noise."""
    say(f"{trials} trials each, 5 repeats against 5, --max-regression 5%")
    say(f"{'noise':<14}{'spread':>8}{'stages':>8}{'A/A fails':>12}{'+10 % is caught':>18}")
    for name, noise in NOISES.items():
        for spread, stages in ((0.002, 1), (0.01, 1), (0.01, 4), (0.02, 1)):
            names = [f"concurrency {2**n}" for n in range(stages)]
            rates = []
            for slower in (1.0, 1.1):
                found = failures(
                    Random(f"{seed}:{name}:{spread}:{stages}:{slower}"),
                    noise=noise,
                    spread=spread,
                    slower=slower,
                    trials=trials,
                    stages=names,
                )
                rates.append(found / trials)
            say(f"{name:<14}{spread:>8.1%}{stages:>8}{rates[0]:>12.2%}{rates[1]:>18.2%}")


def measured(before: Sequence[Path], after: Sequence[Path], trials: int, seed: int) -> None:
    """Print how often the gate fails on repeats that were measured."""
    random, repeats = Random(seed), 5
    first, second = draws(before, random, repeats), draws(after, random, repeats)
    same = sum(fails(*next(first)) for _ in range(trials))
    caught = sum(fails(next(first)[0], next(second)[0]) for _ in range(trials))
    say(
        f"{trials} draws of 5 repeats against 5: A/A fails {same / trials:.2%}, "
        f"the change is caught {caught / trials:.2%}"
    )


def say(text: str) -> None:
    """Print a line as soon as it is known."""
    print(text, flush=True)  # noqa: T201


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--before", type=Path, nargs="+", default=[])
    parser.add_argument("--after", type=Path, nargs="+", default=[])
    asked = parser.parse_args()
    if asked.before and asked.after:
        measured(asked.before, asked.after, asked.trials, asked.seed)
    else:
        simulated(asked.trials, asked.seed)


if __name__ == "__main__":
    main()
