"""What of a launch is only known when it runs: words, variables, and problems that rest on them."""

from dataclasses import replace
from typing import Final

from k31ctl.core.launch import Launch, Problem, ReadProblem
from k31ctl.serve.read.found import FoundLaunch

_VALUE_PROBLEMS: Final = (
    Problem.BAD_TYPE,
    Problem.BAD_CHOICE,
    Problem.BAD_RUNTIME_CHOICE,
    Problem.UNKNOWN_FIELD,
    Problem.UNEXPECTED_WORD,
    Problem.UNKNOWN_FLAG,
    Problem.TO_GATEWAY,
    Problem.REPEATED_FLAG,
)


def open_positions(launch: Launch, found: FoundLaunch) -> frozenset[int]:
    """The words behind the engine's call that are not known."""
    words = enumerate(found.words)
    return frozenset(at for at, word in words if not word.resolved and at >= launch.start)


def is_open(launch: Launch, found: FoundLaunch) -> bool:
    """Whether flags may come from a variable, a template or a file of settings."""
    unknown = open_positions(launch, found)
    values = {p for setting in launch.settings for p in setting.positions}
    by_file = any(problem.problem is Problem.CONFIG_FILE for problem in launch.problems)
    return by_file or bool(unknown - values)


def open_variables(launch: Launch, found: FoundLaunch) -> frozenset[str]:
    """The variables of the launch whose values are only known when it runs."""
    names = {name for name, each in found.environment.items() if not each.resolved}
    for word in found.words[: len(launch.wrapper)]:
        name, equals, _ = word.text.partition("=")
        if equals and word.resolved:
            names.discard(name)
        elif equals:
            names.add(name)
    return frozenset(names.intersection(launch.environment))


def is_environment_open(launch: Launch, found: FoundLaunch) -> bool:
    """Whether variables come from what is not read: a file, or words that ``env`` gets."""
    wrapper = found.words[: len(launch.wrapper)]
    has_env = any(word.text.rpartition("/")[2] == "env" for word in wrapper)
    given = any(not word.resolved and "=" not in word.text.partition("$")[0] for word in wrapper)
    return found.open_environment or (has_env and given)


def without_unknown(launch: Launch, found: FoundLaunch) -> Launch:
    """The launch without problems that rest on what is only known at run time.

    A variable that the file itself puts into its commands is read, if not by the engine.
    """

    def rests_on_open(problem: ReadProblem) -> bool:
        if problem.problem is Problem.UNREAD_VARIABLE:
            return problem.subject in found.expanded
        return problem.problem in _VALUE_PROBLEMS and any(
            not found.words[p].resolved for p in problem.positions
        )

    kept = tuple(problem for problem in launch.problems if not rests_on_open(problem))
    return replace(launch, problems=kept)
