"""The command of a container or unit, as words or as text, with the script that it carries."""

from collections.abc import Sequence

from k31ctl.serve.read.docker import with_entrypoint
from k31ctl.serve.read.found import Assigned, SourceWord, relocated
from k31ctl.serve.read.shell import Command, may_start, shell_commands
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
        if (" " in word.text.strip() or "\n" in word.text) and may_start(word.text):
            for each in shell_commands(word.text, environment=environment):
                inner = each.words
                if word.start >= 0:
                    inner = relocated(inner, word.text, text, start=word.start, end=word.end)
                found.append(Command(words=inner, environment=each.environment))
    return tuple(found) or (Command(words=tuple(words), environment=environment),)


def container_words(
    image: str, *, entry: Value | None, command: Value | None
) -> tuple[SourceWord, ...]:
    """The words that run in a container of a manifest."""
    return with_entrypoint(image, words_of(command) or (), entry=words_of(entry))
