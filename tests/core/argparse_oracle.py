"""Python's own argparse with the flags of a catalog: what our reader is held against."""

import argparse
import contextlib
import io
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from k31ctl.core.flag_values import flag_value
from k31ctl.core.flags import Flag

_PLAIN: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}


class Refused(Exception):  # noqa: N818 - an outcome, not an error
    """What argparse says where it would print its usage and exit."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


class _Paired(argparse.Action):
    """A switch whose negative spellings are not all of the form ``--no-...``."""

    def __init__(self, *, negative: Callable[[str], bool], **given: Any) -> None:
        super().__init__(nargs=0, **given)
        self.negative = negative

    def __call__(self, _parser: Any, namespace: Any, _values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, not self.negative(option))


def parser_of(
    flags: Sequence[Flag], *, engine: str, abbreviations: bool
) -> argparse.ArgumentParser:
    parser = _Parser(prog="engine", allow_abbrev=abbreviations)
    for flag in flags:
        _add(parser, flag, engine)
    return parser


def _add(parser: argparse.ArgumentParser, flag: Flag, engine: str) -> None:
    given: dict[str, Any] = {"dest": flag.dest, "default": argparse.SUPPRESS}
    if not flag.names:
        parser.add_argument(flag.dest, nargs=flag.nargs, default=argparse.SUPPRESS)
        return
    given["required"] = flag.required
    if flag.is_switch:
        parser.add_argument(*flag.spellings, action=_Paired, negative=flag.negates, **given)
    elif flag.nargs == 0:
        const = {"store_true": True, "store_false": False}.get(flag.action, flag.const)
        parser.add_argument(*flag.spellings, action="store_const", const=const, **given)
    else:
        given["type"] = _PLAIN.get(flag.type) or (lambda w: flag_value(flag, w, engine=engine))
        given |= {"nargs": flag.nargs, "choices": flag.choices}
        if flag.nargs == "?":
            given["const"] = flag.const
        action = "append" if flag.appends else "store"
        parser.add_argument(*flag.spellings, action=action, **given)


def parsed(parser: argparse.ArgumentParser, words: Sequence[str]) -> dict[str, Any] | None:
    """What argparse sets; None where it shows its help. Raises Refused."""
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            return vars(parser.parse_args(list(words)))
        except SystemExit:
            return None
