"""The command of a container or unit, as words or as text, with the script that it carries."""

from collections.abc import Sequence
from dataclasses import replace

from k31ctl.serve.read.docker import with_entrypoint
from k31ctl.serve.read.found import Assigned, SourceWord, relocated
from k31ctl.serve.read.shell import shell_commands
from k31ctl.serve.read.shell_text import Command, is_script
from k31ctl.serve.read.unclosed import require_closed
from k31ctl.serve.read.yaml_graph import Value


def words_of(value: Value | None) -> tuple[SourceWord, ...] | None:
    """A command as a manifest has it, a list of words or one line; None where there is none."""
    if value is None:
        return None
    if not value.is_text:
        return tuple(item.word() for item in value.items() if item.is_text)
    commands = shell_commands(value.text)
    if not commands:
        return ()
    return relocated(
        commands[0].words, value.text, value.source.text, start=value.start, end=value.end
    )


def carried_commands(
    words: Sequence[SourceWord], *, environment: dict[str, Assigned], text: str
) -> tuple[Command, ...]:
    """Return the words as a command, or the commands of the script that one of them is."""
    found: list[Command] = []
    for word in words:
        if is_script(word.text):
            for each in shell_commands(word.text, environment=environment):
                inner = each.words
                if word.start >= 0:
                    inner = relocated(inner, word.text, text, start=word.start, end=word.end)
                found.append(replace(each, words=inner))
    return tuple(found) or (Command(words=tuple(words), environment=environment),)


def _require_closed(value: Value | None) -> None:
    """InputError where a command, or a script that is one of its words, leaves a quote open."""
    if value is None:
        return
    for each in value.items() or [value]:
        if each is value or is_script(each.text):
            require_closed(each.source, text=each.text, start=each.start)


def container_commands(
    image: str, *, entry: Value | None, command: Value | None, environment: dict[str, Assigned]
) -> tuple[Command, ...]:
    """What runs in a container of a manifest, every command where it is given as a script."""
    for value in (entry, command):
        _require_closed(value)
    given = command or entry
    text = given.source.text if given is not None else ""
    first = words_of(entry)
    if command is None or not command.is_text:
        words = with_entrypoint(image, words_of(command) or (), entry=first)
        return carried_commands(words, environment=environment, text=text)
    found: list[Command] = []
    for each in shell_commands(command.text, environment=environment):
        own = relocated(each.words, command.text, text, start=command.start, end=command.end)
        words = with_entrypoint(image, own, entry=first)
        found += carried_commands(words, environment=each.environment, text=text)
    return tuple(found)
