"""Words to settings as Python's argparse would read them, with every problem, not the first alone.

Source: CPython 3.11, Lib/argparse.py, ``_parse_known_args``. After a problem the reading goes on
where the parser would have gone on, had the word been right.
"""

import difflib
from collections.abc import Sequence
from itertools import takewhile

from k31ctl.core.argument_words import Grammar, Match, Word
from k31ctl.core.flag_values import flag_value
from k31ctl.core.flags import Flag
from k31ctl.core.launch import Problem, Program, ReadProblem, Setting
from k31ctl.values import frozen

_SHOWN_CHOICES = 12


@frozen
class Reading:
    """What one parser made of its words."""

    settings: tuple[Setting, ...]
    problems: tuple[ReadProblem, ...]


def read_arguments(words: Sequence[Word], grammar: Grammar, *, program: Program) -> Reading:
    """Return the settings in the order of the words, and what the parser would complain about."""
    reader = _Reader(words, grammar, program)
    reader.read()
    return Reading(settings=tuple(reader.settings), problems=tuple(reader.problems))


class _Reader:
    """One pass over the words; the lists only grow."""

    def __init__(self, words: Sequence[Word], grammar: Grammar, program: Program) -> None:
        self.words, self.grammar, self.program = words, grammar, program
        self.positionals = list(grammar.positionals)
        self.settings: list[Setting] = []
        self.problems: list[ReadProblem] = []
        texts = [word.text for word in words]
        end = texts.index("--") if "--" in texts else len(texts)
        self.end_of_flags = end
        self.matches = {
            index: match for index in range(end) if (match := grammar.match(texts[index]))
        }

    def read(self) -> None:
        index = 0
        while index < len(self.words):
            match = self.matches.get(index)
            index = self._values(index) if match is None else self._flag(match, index)
        used = {setting.dest for setting in self.settings}
        for flag in {id(f): f for f in self.grammar.spellings.values()}.values():
            if flag.required and flag.dest not in used:
                self._problem(Problem.MISSING_FLAG, flag.name, f"{flag.name} is required", ())

    def _values(self, index: int) -> int:
        """Give the words up to the next flag to the positional arguments, one to each."""
        end = index
        while end < len(self.words) and end not in self.matches:
            end += 1
        taken_by_position = False
        for word in self.words[index:end]:
            if word.text == "--" and (self.positionals or taken_by_position):
                continue
            if self.positionals:
                taken_by_position = True
                flag = self.positionals.pop(0)
                self._set(flag, flag.dest, (word,), word.positions)
                continue
            self._stray(word)
        return end

    def _stray(self, word: Word) -> None:
        """Count a word that nothing takes with the unknown flag before it, if there is one."""
        last = self.problems[-1] if self.problems else None
        if (
            last is not None
            and last.problem in (Problem.UNKNOWN_FLAG, Problem.AMBIGUOUS_FLAG)
            and "=" not in last.subject
            and word.positions
            and last.positions
            and max(last.positions) == min(word.positions) - 1
        ):
            self.problems[-1] = ReadProblem(
                problem=last.problem,
                subject=last.subject,
                message=last.message,
                positions=(*last.positions, *word.positions),
                candidates=last.candidates,
            )
            return
        message = f"{word.text!r} belongs to no flag"
        self._problem(Problem.UNEXPECTED_WORD, word.text, message, word.positions)

    def _flag(self, match: Match, index: int) -> int:
        word = self.words[index]
        if match.flag is None:
            self._not_a_flag(match, word)
            return index + 1
        if match.explicit is not None:
            self._explicit(match.flag, match, word)
            return index + 1
        self._notes(match.flag, match.spelling, word)
        first = index + 1
        following = takewhile(
            lambda at: at < self.end_of_flags and at not in self.matches,
            range(first, len(self.words)),
        )
        available = [self.words[at] for at in following]
        number = _num_taken(match.flag.nargs, len(available))
        if number is None:
            self._missing(match.flag, match.spelling, word)
            return first
        taken = tuple(available[:number])
        positions = (*word.positions, *(p for value in taken for p in value.positions))
        self._set(match.flag, match.spelling, taken, positions)
        return first + number

    def _explicit(self, flag: Flag, match: Match, word: Word) -> None:
        """Take the value that stands in the same word."""
        self._notes(flag, match.spelling, word)
        value = match.explicit or ""
        number = _num_taken(flag.nargs, 1)
        if number is None:
            self._missing(flag, match.spelling, word)
        elif number == 0 and not match.spelling.startswith("--") and value:
            self._set(flag, match.spelling, (), word.positions)
            self._clustered(match.spelling[0] + value[0], value[1:], word)
        elif number == 0:
            self._unwanted(flag, match.spelling, word)
        else:
            taken = (Word(text=value, positions=()),)
            self._set(flag, match.spelling, taken, word.positions)

    def _clustered(self, spelling: str, rest: str, word: Word) -> None:
        """Read the next of several one-letter flags behind one dash."""
        flag = self.grammar.spellings.get(spelling)
        if flag is None:
            message = f"{word.text!r} has a value, but the flag takes none"
            self._problem(Problem.UNWANTED_VALUE, word.text, message, word.positions)
            return
        self._flag_in_cluster(flag, spelling, rest, word)

    def _flag_in_cluster(self, flag: Flag, spelling: str, rest: str, word: Word) -> None:
        if rest:
            self._explicit(flag, Match(flag=flag, spelling=spelling, explicit=rest), word)
        elif _num_taken(flag.nargs, 0) is None:
            self._missing(flag, spelling, word)
        else:
            self._set(flag, spelling, (), word.positions)

    def _set(
        self, flag: Flag, spelling: str, taken: tuple[Word, ...], positions: tuple[int, ...]
    ) -> None:
        texts = tuple(word.text for word in taken)
        if not flag.appends and any(s.dest == flag.dest for s in self.settings):
            message = f"{spelling} was set before; only the last one counts"
            self._problem(Problem.REPEATED_FLAG, flag.name, message, positions)
        self.settings.append(
            Setting(
                flag=flag.name,
                dest=flag.dest,
                spelling=spelling,
                words=texts,
                value=self._value(flag, spelling, texts, positions),
                positions=positions,
                program=self.program,
            )
        )

    def _value(
        self, flag: Flag, spelling: str, texts: tuple[str, ...], positions: tuple[int, ...]
    ) -> object:
        if flag.takes_no_word:
            return _stands_for(flag, spelling)
        values = []
        for text in texts:
            try:
                value = flag_value(flag, text, engine=self.grammar.engine)
            except (ValueError, ArithmeticError, RecursionError) as error:
                message = f"{spelling} does not take {_shown(text)} ({flag.type}: {error})"
                self._problem(Problem.BAD_TYPE, flag.name, message, positions)
                value = text
            else:
                self._check_choice(flag, spelling, value, positions)
            values.append(value)
        if flag.nargs == "?" and not values:
            return flag.const
        return values[0] if flag.nargs in (None, "?") else tuple(values)

    def _check_choice(
        self, flag: Flag, spelling: str, value: object, positions: tuple[int, ...]
    ) -> None:
        if flag.choices is None or value in flag.choices:
            return
        choices = tuple(str(choice) for choice in flag.choices)
        near = difflib.get_close_matches(str(value), choices, n=3) or choices[:_SHOWN_CHOICES]
        message = f"{spelling} does not take {_shown(str(value))}"
        self._problem(Problem.BAD_CHOICE, flag.name, message, positions, tuple(near))

    def _not_a_flag(self, match: Match, word: Word) -> None:
        if match.candidates:
            message = f"{word.text} could be {' or '.join(match.candidates)}"
            self._problem(
                Problem.AMBIGUOUS_FLAG, word.text, message, word.positions, match.candidates
            )
            return
        head = word.text.partition("=")[0]
        near = difflib.get_close_matches(head, self.grammar.spellings, n=3, cutoff=0.75)
        message = f"{head} is no flag of this release"
        self._problem(Problem.UNKNOWN_FLAG, word.text, message, word.positions, tuple(near))

    def _notes(self, flag: Flag, spelling: str, word: Word) -> None:
        written = word.text.partition("=")[0]
        if word.text.startswith("--") and written != spelling:
            message = f"{written} is taken for {spelling}; a later release may refuse it"
            self._problem(
                Problem.ABBREVIATED_FLAG, written, message, word.positions, candidates=(spelling,)
            )
        if spelling in flag.hidden_names:
            documented = flag.spelling_of(yes=not flag.negates(spelling)) or flag.name
            message = f"{spelling} is no longer in the engine's help; it is {documented} now"
            self._problem(
                Problem.HIDDEN_SPELLING, spelling, message, word.positions, candidates=(documented,)
            )
        if flag.deprecated:
            message = f"{spelling} is deprecated"
            self._problem(Problem.DEPRECATED_FLAG, flag.name, message, word.positions)

    def _missing(self, flag: Flag, spelling: str, word: Word) -> None:
        wanted = f"{flag.nargs} values" if isinstance(flag.nargs, int) else "a value"
        self._problem(
            Problem.MISSING_VALUE, flag.name, f"{spelling} needs {wanted}", word.positions
        )

    def _unwanted(self, flag: Flag, spelling: str, word: Word) -> None:
        message = f"{spelling} takes no value; {word.text!r} gives it one"
        self._problem(Problem.UNWANTED_VALUE, flag.name, message, word.positions)

    def _problem(
        self,
        problem: Problem,
        subject: str,
        message: str,
        positions: tuple[int, ...],
        candidates: tuple[str, ...] = (),
    ) -> None:
        self.problems.append(
            ReadProblem(
                problem=problem,
                subject=subject,
                message=message,
                positions=positions,
                candidates=candidates,
            )
        )


def _num_taken(nargs: str | int | None, available: int) -> int | None:
    """How many of the available words a flag takes; None where they are too few."""
    if isinstance(nargs, int):
        return nargs if available >= nargs else None
    least = 1 if nargs in (None, "+") else 0
    most = available if nargs in ("*", "+") else 1
    return min(most, available) if available >= least else None


def _stands_for(flag: Flag, spelling: str) -> object:
    """The value of a flag that stands alone."""
    if flag.is_switch:
        return not flag.negates(spelling)
    return {"store_false": False, "store_true": True, "help": True}.get(flag.action, flag.const)


def _shown(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:60]) + "..."  # noqa: PLR2004
