"""What the numbers rest on, and how to make the same page again."""

from k31ctl.report.html_elements import Head, Markup, el, linked, missing, section, table
from k31ctl.report.html_read import Row, mapping, rows, text


def sources_section(document: Row) -> Markup:
    """Every assumption with its basis and its source."""
    found = rows(document.get("assumptions"))
    if not found:
        said = "The document states no assumption."
        return section("assumptions", "Assumptions and sources", missing(said))
    heads = tuple(Head(name, is_number=False) for name in ("mark", "assumption", "basis", "source"))
    body = [
        (
            f"a{n}",
            linked(text(row.get("text"))),
            el("span", text(row.get("basis")), class_="basis"),
            linked(text(row.get("source"))),
        )
        for n, row in enumerate(found, 1)
    ]
    said = (
        "Exact sums equal the checkpoint's own headers to the byte; derived numbers follow from "
        "exact ones; measured ones were read off a run; assumed ones are believed, for the reason "
        "beside them."
    )
    return section(
        "assumptions",
        "Assumptions and sources",
        el("p", said),
        table("What these numbers rest on", heads, body),
    )


def reproduce_section(document: Row, *, command: str) -> Markup:
    """The exact command and the release that ran it."""
    engine = mapping(mapping(document.get("result")).get("engine"))
    facts = (
        ("k31ctl", text(document.get("version"))),
        ("document", text(document.get("schema"))),
        ("engine rules", linked(text(engine.get("source")))),
    )
    return section(
        "reproduce",
        "How to reproduce this page",
        el("p", "The same release with the same profiles writes the same bytes."),
        el("pre", el("code", command), tabindex="0", aria_label="command"),
        el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in facts),
           class_="facts"),
    )  # fmt: skip
