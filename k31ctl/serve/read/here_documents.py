"""Here-documents of shell scripts: which of them only print their text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tree_sitter import Node

_PRINTERS: Final = frozenset({":", "cat", "echo", "printf", "true"})
_READERS: Final = frozenset({"fold", "grep", "head", "less", "more", "sed", "tail", "wc"})
_ELSEWHERE: Final = ("pipeline", "command_substitution", "process_substitution")


def only_prints(redirect: "Node", content: bytes) -> bool:
    """Whether a here-document is shown, or thrown away, and no file or program gets it to run."""
    statement = redirect.parent
    command = None if statement is None else statement.child_by_field_name("body")
    if statement is None or _name(command, content) not in _PRINTERS:
        return False
    given = command.children_by_field_name("argument") if command is not None else []
    if any(_text(each, content) != "-" for each in given):
        return False
    for pipeline in (c for c in redirect.children if c.type == "pipeline"):
        if any(_name(each, content) not in _READERS for each in pipeline.named_children):
            return False
    if _is_kept(redirect, content):
        return False
    return not any(
        each.type in _ELSEWHERE or _is_kept(each, content) for each in _ancestors(redirect)
    )


def _ancestors(node: "Node") -> Iterator["Node"]:
    above = node.parent
    while above is not None:
        yield above
        above = above.parent


def _is_kept(node: "Node", content: bytes) -> bool:
    """Whether what a statement prints is written to a file."""
    redirects = [child for child in node.children if child.type == "file_redirect"]
    written = [each for each in redirects if ">" in _text(each, content)]
    places = [each.child_by_field_name("destination") for each in written]
    texts = [_text(place, content) for place in places if place is not None]
    return any(not text.isdigit() and not text.startswith("/dev/") for text in texts)


def _name(node: "Node | None", content: bytes) -> str:
    """The program that a command starts, empty where the node is no simple command."""
    name = None if node is None else node.child_by_field_name("name")
    return "" if name is None else _text(name, content).rpartition("/")[2]


def _text(node: "Node", content: bytes) -> str:
    return content[node.start_byte : node.end_byte].decode("utf-8", "replace")
