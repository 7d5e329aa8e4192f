"""Lines of text that fit a terminal and hold nothing that would steer it."""

from typing import Final

_WIDTH: Final = 80


def folded(text: str, *, indent: str) -> list[str]:
    """Lines of at most 80 columns, broken behind a space or a point where there is one."""
    room = _WIDTH - len(indent)
    lines = []
    while len(text) > room:
        cut = max(text.rfind(" ", 0, room), text.rfind(".", 0, room)) + 1
        cut = cut if cut > room // 2 else room
        lines.append(indent + text[:cut].rstrip())
        text = text[cut:].lstrip()
    return [*lines, indent + text]


def printable(line: str) -> str:
    """The line without control codes, which may come from a file's content."""
    return "".join(mark if mark.isprintable() else "?" for mark in line)
