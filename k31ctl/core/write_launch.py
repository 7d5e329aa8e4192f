"""Settings as the words of a command, in the documented spelling: the reverse of reading."""

import json
import re
from collections.abc import Mapping
from typing import Final

from k31ctl.core.flag_values import is_json
from k31ctl.core.flags import Flag, FlagCatalog, flags_by_spelling

_NEGATIVE_NUMBER: Final = re.compile(r"-\d+|-\d*\.\d+")


def write_settings(settings: Mapping[str, object], catalog: FlagCatalog) -> tuple[str, ...]:
    """Return the words that set each flag of the engine, by its name, to its value.

    True and False switch a flag; a list gives a flag several words; a mapping becomes JSON in one
    word. ValueError where no word can say it: an unknown flag, a False that has no spelling.
    """
    spellings = all_spellings(catalog)
    words: list[str] = []
    for name, value in settings.items():
        if name not in spellings:
            raise ValueError(f"{catalog.name} has no flag {name}")
        written = flag_words(spellings[name], value)
        if catalog.orchestrator is not None:
            _check_passed_on(written)
        words += written
    return tuple(words)


def _check_passed_on(words: tuple[str, ...]) -> None:
    """Refuse a value that the launcher takes apart from its flag and that then reads as one."""
    head, equals, value = words[0].partition("=")
    if equals and not _NEGATIVE_NUMBER.fullmatch(value):
        raise ValueError(f"{head} cannot be given {value!r}: it reads as a flag once passed on")


def all_spellings(catalog: FlagCatalog) -> dict[str, Flag]:
    """Every spelling that the command of this engine takes, wherever the flag then goes."""
    beside: tuple[Flag, ...] = ()
    if catalog.orchestrator is not None and catalog.gateway is not None:
        beside = (*catalog.gateway.flags, *catalog.orchestrator.flags)
    return flags_by_spelling((*beside, *catalog.flags))


def flag_words(flag: Flag, value: object) -> tuple[str, ...]:
    """Return the words that set one flag to a value."""
    if flag.takes_no_word:
        return (_switch(flag, value),)
    if flag.appends:
        each = value if isinstance(value, list | tuple) else (value,)
        return tuple(word for one in each for word in _joined(flag, _text(flag, one)))
    if flag.nargs in (None, "?", 1):
        one = value[0] if flag.nargs == 1 and isinstance(value, list | tuple) else value
        if flag.nargs == "?" and one == flag.const and not isinstance(one, str):
            return (flag.name,)
        return _joined(flag, _text(flag, one))
    if not isinstance(value, list | tuple):
        raise ValueError(f"{flag.name} takes a list of values")  # noqa: TRY004
    texts = [_text(flag, one) for one in value]
    if bad := [text for text in texts if text.startswith("-")]:
        raise ValueError(f"{flag.name} cannot be given {bad[0]!r}: it reads as a flag")
    return (flag.name, *texts)


def published_words(flags: Mapping[str, object]) -> tuple[str, ...]:
    """Return flags as they were published, in whatever spelling, without asking a catalog."""
    words: list[str] = []
    for name, value in flags.items():
        words.append(name)
        match value:
            case True:
                pass
            case list() | tuple():
                words += [str(one) for one in value]
            case dict():
                words.append(_json(value))
            case _:
                words.append(str(value))
    return tuple(words)


def _joined(flag: Flag, text: str) -> tuple[str, ...]:
    """Return flag and value; in one word where the value alone would read as a flag."""
    return (f"{flag.name}={text}",) if text.startswith("-") else (flag.name, text)


def _switch(flag: Flag, value: object) -> str:
    if flag.is_switch and isinstance(value, bool):
        if spelling := flag.spelling_of(yes=value):
            return spelling
    elif value == {"store_true": True, "store_false": False}.get(flag.action, flag.const):
        return flag.name
    raise ValueError(f"no spelling sets {flag.name} to {value!r}")


def _text(flag: Flag, value: object) -> str:
    """Return one value as one word."""
    if is_json(flag) and isinstance(value, dict | list | tuple):
        return _json(value)
    if flag.type == "_parse_int_csv" and isinstance(value, list | tuple):
        return ",".join(str(one) for one in value)
    if value is None and flag.type.startswith(("_optional_type", "nullable_str")):
        return "None"
    if value is None or isinstance(value, dict | list | tuple):
        raise ValueError(f"{flag.name} cannot be given {value!r}")
    if isinstance(value, str):
        return json.dumps(value) if _needs_quotes(flag) else value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _needs_quotes(flag: Flag) -> bool:
    """Whether text has to be written as JSON text to stay text."""
    return is_json(flag) and flag.type != "union_dict_and_str"


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True)
