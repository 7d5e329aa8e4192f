"""The frame of every page: what may be loaded (nothing), styles, parts, scripts of its own."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from importlib import resources

from k31ctl.report.html_elements import Markup, el, join

Parts = Sequence[tuple[str, str]]


def page(
    *,
    title: str,
    version: str,
    styles: Sequence[str],
    parts: Parts,
    masthead: Markup,
    sections: Iterable[Markup],
    behind: Iterable[Markup] = (),
    scripts: Sequence[str] = (),
) -> str:
    """Return a page; ``styles`` and ``scripts`` are names of assets, ``behind`` follows the text.

    ``parts`` are ids and names of the sections, of which the first is the answer.
    """
    carried = [asset(name) for name in scripts]
    first, name = parts[0]
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(carried)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="generator", content=f"k31ctl {version}"),
        el("title", title),
        el("style", Markup("".join(asset(name) for name in styles))),
    )
    contents = (el("li", el("a", part, href=f"#{key}")) for key, part in parts)
    body = el(
        "body",
        el("a", f"Skip to the {name.lower()}", href=f"#{first}", class_="skip"),
        masthead,
        el("nav", el("ol", *contents), aria_label="Parts of this page"),
        el("main", *sections),
        *behind,
        *(el("script", Markup(script)) for script in carried),
    )
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def masthead(kicker: str, title: str, *, words: str, kind: str, about: Iterable[str]) -> Markup:
    """Return the head of a page: what it is of, the verdict, and what is known beside it."""
    return el(
        "header",
        el("p", kicker, class_="kicker"),
        el("h1", title),
        el("p", el("span", words, class_=f"verdict {kind}"),
           " ", join((part for part in about if part), " · "), class_="about"),
    )  # fmt: skip


def asset(name: str) -> str:
    """Return the text of a file that pages carry."""
    return (resources.files("k31ctl.report") / "assets" / name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Nothing may be loaded, and no script may run but the ones in this file."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts)
    allowed = " ".join(f"'sha256-{found}'" for found in hashes)
    run = f"script-src {allowed}; " if allowed else ""
    return (
        f"default-src 'none'; {run}style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
