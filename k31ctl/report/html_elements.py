"""Elements of a page. Every text is escaped on its way in, unless it is Markup already."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, NamedTuple

_VOID: Final = frozenset({"br", "input", "meta"})
_LINK: Final = re.compile(r"https?://[^\s<>\"'`(){}\\^|]+[^\s<>\"'`(){}\\^|.,;:]")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


class Head(NamedTuple):
    """The head of a column; columns of numbers end in one line on the right."""

    text: str
    is_number: bool = True


def safe(value: object) -> Markup:
    """A value as text of a page; halves of characters that no file can hold become ``?``."""
    if isinstance(value, Markup):
        return value
    return Markup(escape(str(value).encode("utf-8", "replace").decode("utf-8")))


def el(name: str, /, *children: object, **attributes: object) -> Markup:
    """One element. ``class_`` writes class, ``aria_label`` aria-label; True is a bare name."""
    written = ""
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        shown = key.rstrip("_").replace("_", "-")
        written += f" {shown}" if value is True else f' {shown}="{safe(value)}"'
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[object], separator: str = "") -> Markup:
    """Elements one after the other; None is left out."""
    shown = (safe(child) for child in children if child is not None)
    return Markup(safe(separator).join(shown))


def linked(text: str) -> Markup:
    """A source whose addresses can be followed; nothing is loaded from them."""
    parts: list[object] = []
    end = 0
    for found in _LINK.finditer(text):
        parts += [text[end : found.start()], _link(found[0])]
        end = found.end()
    return join([*parts, text[end:]])


def section(name: str, title: str, *blocks: object) -> Markup:
    """One part of the page, named by its heading."""
    heading = el("h2", title, id=f"{name}-title")
    return el("section", heading, *blocks, id=name, aria_labelledby=f"{name}-title")


def table(caption: str, heads: Sequence[Head], body: Iterable[Sequence[object]]) -> Markup:
    """A table with a caption; the first cell of a row names it."""
    top = el("tr", *(el("th", h.text, scope="col", class_=_side(h)) for h in heads))
    lines = [
        el(
            "tr",
            *(
                el("td" if n else "th", cell, scope=None if n else "row", class_=_side(head))
                for n, (head, cell) in enumerate(zip(heads, row, strict=True))
            ),
        )
        for row in body
    ]
    found = el("table", el("caption", caption), el("thead", top), el("tbody", *lines))
    return el("div", found, class_="scroll")


def chart(name: str, title: str, said: str, numbers: Markup | None = None) -> Markup:
    """A figure that a script draws, with what it shows in words and the numbers behind it.

    The numbers stand open in the file, so that they are there without a script and on paper.
    """
    waiting = el("p", "This chart needs JavaScript; its numbers are in the table.", class_="wait")
    behind = el("details", el("summary", "Numbers: ", title), numbers, open=True)
    return el(
        "figure",
        el("figcaption", el("strong", title), " ", said),
        el("div", waiting, class_="chart", data_chart=name, data_label=f"{title}. {said}"),
        behind if numbers else None,
    )


def missing(said: str) -> Markup:
    """One sentence in the place of a part that the document does not have."""
    return el("p", said, class_="missing")


def _side(head: Head) -> str | None:
    return "n" if head.is_number else None


def _link(address: str) -> Markup:
    return el("a", address, href=address, rel="noopener noreferrer")
