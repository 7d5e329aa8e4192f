"""The steps of the loop: which commands they run, and what a person should notice of the answers.

A step yields what it noticed, line by line; every number in it comes from the answer of a command.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from demo.program import Program
from k31ctl.units import show, show_bytes, show_gib
from tests.fetch.hub_server import Answer, HubServer, running_hub

REPO: Final = "demo/tiny-k31"
SLOW_HUB_BYTES_PER_S: Final = 600_000  # so that there is a middle to be killed in
# What these ask of a model is beyond one of random weights: calls and forms that are owed would be
# held against the service, and the others would stay open.
OF_THE_MODEL: Final = (
    *("reasoning-separated", "tool-choice", "json-schema", "json-object", "logprobs"),
    *("isolation", "long-context"),
)
OUTPUT_TOKENS: Final = "24"
# The calibration has to tell what every load up to this length takes, so it is close to the loads.
LENGTH: Final = ("--max-model-len", "2k")


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How much the loop asks of the machine: loads are users, prompt tokens and requests."""

    answer_tokens: int
    checks: tuple[str, ...]
    loads: tuple[tuple[str, int, int], ...]
    unseen: tuple[int, int, int]


# A calibration that cannot tell its parameters is refused: short prompts tell what a token of an
# answer costs, long ones what a prompt does, and several users what they share.
FULL: Final = Amounts(
    answer_tokens=32,
    checks=(),
    loads=(("1,4,8", 16, 24), ("1,4", 512, 12), ("1,2", 1536, 6)),
    unseen=(2, 1024, 12),
)
SHORT: Final = Amounts(
    answer_tokens=16,
    checks=("answer-shape", "usage", "error-shapes"),
    loads=(("1,4", 16, 8), ("1", 512, 4), ("1", 1536, 2)),
    unseen=(2, 512, 4),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A part of the loop: its name, the question that it answers, and what it does."""

    name: str
    question: str
    run: Callable[[Program, Amounts], Iterator[str]]


def plan(program: Program, _: Amounts) -> Iterator[str]:
    """Ask of the real model what needs no GPU, no network and no checkpoint."""
    found = program.ask("plan", "--context", "128k", into="plan.json")
    memory = found["memory"]["per_gpu"]
    (at_once,) = (c for c in found["concurrency"] if c["context_tokens"] == 128 * 1024)
    yield (
        f"{'It fits' if found['fits'] else 'It does not fit'}: weights take "
        f"{show_gib(memory['weights_bytes'])} of each GPU's {show_gib(memory['capacity_bytes'])} "
        f"GiB, and {at_once['max_requests']} requests of 128k tokens fit beside them."
    )
    yield (
        f"Expected {_token_time(found)} a token, "
        f"${found['cost']['usd_per_m_output_tokens']:.2f} a million output tokens."
    )


def tiny(program: Program, _: Amounts) -> Iterator[str]:
    """Write a checkpoint of that architecture that this machine can run."""
    found = program.ask("tiny", "published", into="tiny.json")
    yield (
        f"{found['num_tensors']} tensors, {show_bytes(found['total_bytes'])}: every kind "
        "of layer of the release, with random weights. What it says will mean nothing."
    )


def inspect(program: Program, _: Amounts) -> Iterator[str]:
    """Hold its headers against what its configuration implies."""
    found = program.ask("inspect", "published", into="inspect.json")
    yield (
        f"{found['num_tensors']} tensors where the config implies "
        f"{found['expected']['num_tensors']}; {found['num_missing']} missing, "
        f"{found['num_mismatched']} of another shape or type."
    )


def fetch(program: Program, _: Amounts) -> Iterator[str]:
    """Download it from a hub on loopback, killed in the middle and begun again."""
    published = {path.name: path.read_bytes() for path in (program.folder / "published").iterdir()}
    hub = HubServer(files=published, repo=REPO, fault=_slow, redirect_host="127.0.0.1")
    num_bytes = sum(map(len, published.values()))
    with running_hub(hub):
        command = ("fetch", REPO, "--endpoint", hub.url, "--to", "weights")
        program.kill_when(lambda: hub.num_bytes() > num_bytes / 2, *command)
        yield (
            f"Killed (SIGKILL) when the hub had sent {show(hub.num_bytes(), 'B')} of "
            f"{show(num_bytes, 'B')}. The same command again:"
        )
        hub.fault = lambda _: None
        found = program.ask(*command, into="fetch.json")
    yield (
        f"It kept {show(found['bytes_reused'], 'B')}, asked for the other "
        f"{show(found['bytes_downloaded'], 'B')}, and proved {found['num_verified']} of "
        f"{found['files']} files by the digests that the hub publishes."
    )


def verify(program: Program, _: Amounts) -> Iterator[str]:
    """Prove what is on disk, offline, down to the values."""
    found = program.ask("verify", "weights", "--deep", into="verify.json")
    yield (
        f"{found['files_hashed'] + found['files_reused']} of {found['files_in_record']} files are "
        f"what was published, {found['num_tensors']} tensors hold sane values, "
        f"{found['num_errors']} errors. No network was asked."
    )


def machine(program: Program, amounts: Amounts) -> Iterator[str]:
    """Measure this machine, and plan the checkpoint on it for a load that comes last."""
    found = program.ask(
        *("bench", "hw", "--no-torch", "--disk-size", "64MiB", "--out", "machine.yaml"),
        into="hw.json",
    )
    rates = found["rates"]
    yield (
        f"{found['profile']['name']}: reads memory at {show(rates['read']['value'], 'B/s')}, "
        f"multiplies at {show(rates['matmul']['fp32']['value'], 'FLOP/s')}. It stands for a GPU:"
    )
    planned = program.ask(*_planned(amounts), into="first.json")
    yield (
        f"Before anything of the engine is measured: {_token_time(planned)} "
        f"a token for {amounts.unseen[0]} users at once."
    )


def serve(program: Program, _: Amounts) -> Iterator[str]:
    """Start the engine that is built in, on what was fetched."""
    lines = program.serve("serve", "weights", "--engine", "embedded", "--port", "0", *LENGTH)
    (room,) = (line for line in lines if "requests at once" in line)
    yield f"Ready at {program.url}: {room}."


def conformance(program: Program, amounts: Amounts) -> Iterator[str]:
    """Ask whether the endpoint keeps what clients of this model rely on."""
    named = [word for check in amounts.checks for word in ("--check", check)]
    left = [] if named else [word for check in OF_THE_MODEL for word in ("--skip", check)]
    found = program.ask(
        *("bench", "conformance", program.url, "--max-tokens", str(amounts.answer_tokens)),
        *named,
        *left,
        into="conformance.json",
    )
    yield (
        f"Of {found['checks']} checks {found['passed']} passed, {found['failed']} failed, "
        f"{found['warnings']} warn; {found['inconclusive']} stay open, as a random model cannot "
        f"show them, and {found['skipped']} {'does' if found['skipped'] == 1 else 'do'} not apply."
    )


def against(program: Program, amounts: Amounts) -> Iterator[str]:
    """Measure it under several loads, each held against the plan."""
    for number, (users, prompt_tokens, requests) in enumerate(amounts.loads, start=1):
        found = _measured(program, users, prompt_tokens, requests, "first.json", f"run-{number}")
        yield _held(found)
    yield f"Likely off: {found['against']['likely_off_says']}."


def calibrate(program: Program, amounts: Amounts) -> Iterator[str]:
    """Fit the speed model to what was measured."""
    runs = [f"run-{number}" for number, _ in enumerate(amounts.loads, start=1)]
    found = program.ask("calibrate", *runs, "--out", "site.yaml", into="calibrate.json")
    figures = found["figures"]
    before = sum(abs(f["before"] / f["measured"] - 1) for f in figures) / len(figures)
    yield (
        f"{len(figures)} figures of {found['calibration']['num_loads']} loads: the plan missed "
        f"them by {before:.0%} on average, fitted it misses by "
        f"{found['calibration']['mean_error']:.0%}."
    )


def replan(program: Program, amounts: Amounts) -> Iterator[str]:
    """Plan a load that was not measured, and measure it then."""
    command = (*_planned(amounts), "--calibration", "site.yaml")
    planned = program.ask(*command, into="second.json")
    users, prompt_tokens, requests = amounts.unseen
    yield (
        f"Now {_token_time(planned)} a token for {users} users who go on and on, a load that no "
        "run had. Is it so?"
    )
    found = _measured(program, str(users), prompt_tokens, requests, "second.json", "run-unseen")
    first = program.results["first.json"]["performance"]["tpot_s"]
    yield (
        f"For {requests} requests, as many as were sent: {_held(found)} The first plan had said "
        f"{first * 1e3:.3g} ms."
    )


STEPS: Final = (
    Step(name="plan", question="does Kimi K3.1 Pro fit on one 8x B300, and how fast?", run=plan),
    Step(name="tiny", question="the same architecture, small enough for here", run=tiny),
    Step(name="inspect", question="is it the checkpoint that its config describes?", run=inspect),
    Step(name="fetch", question="a download that is killed half way", run=fetch),
    Step(name="verify", question="is every byte right?", run=verify),
    Step(name="bench hw", question="what can this machine do, and what follows?", run=machine),
    Step(name="serve", question="the model behind an OpenAI-compatible endpoint", run=serve),
    Step(name="bench conformance", question="does it keep its contract?", run=conformance),
    Step(name="bench --against", question="is it as fast as planned?", run=against),
    Step(name="calibrate", question="what do the measurements teach?", run=calibrate),
    Step(name="plan --calibration", question="and how fast under another load?", run=replan),
)


def _planned(amounts: Amounts) -> tuple[str, ...]:
    users, prompt_tokens, _ = amounts.unseen
    return (
        *("plan", "weights", "--engine", "embedded", "--on", "machine.yaml", *LENGTH),
        *("--prompt-tokens", str(prompt_tokens), "--output-tokens", OUTPUT_TOKENS),
        *("--concurrency", str(users)),
    )


def _measured(
    program: Program, users: str, prompt_tokens: int, requests: int, planned: str, run: str
) -> Any:
    # No warm-up: of its few tokens a random model may make no text, and the checks warmed it up.
    return program.ask(
        *("bench", program.url, "--completions", "--concurrency", users),
        *("--prompt-tokens", str(prompt_tokens), "--output-tokens", OUTPUT_TOKENS),
        *("--requests", str(requests), "--warmup", "0", "--against", planned, "--out", run),
        into=f"{run}.json",
    )


def _held(found: Any) -> str:
    """The last load of a run against its plan: a token's time, and whether the band holds it."""
    stage = found["against"]["stages"][-1]
    if "tpot_s" not in stage:
        return f"{stage['name']} is not held against the plan: {stage['why_not']}."
    time = stage["tpot_s"]
    return (
        f"{stage['name']}, {stage['prompt_tokens']:,} tokens in: "
        f"{time['measured'] * 1e3:.3g} ms a token, planned "
        f"{_ms(time['predicted'], time['low'], time['high'])}; "
        f"{'within' if time['within'] else 'outside'} the band."
    )


def _slow(answer: Answer) -> None:
    answer.rate, answer.piece = SLOW_HUB_BYTES_PER_S, 16 * 1024


def _token_time(planned: Any) -> str:
    """The time of an output token, as a plan has it."""
    speed = planned["performance"]
    return _ms(speed["tpot_s"], speed["tpot_s_low"], speed["tpot_s_high"])


def _ms(expected_s: float, low_s: float, high_s: float) -> str:
    return f"{expected_s * 1e3:.3g} ms ({low_s * 1e3:.3g} to {high_s * 1e3:.3g})"
