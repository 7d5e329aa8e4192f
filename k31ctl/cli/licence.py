"""``k31ctl licence``: what is known of the terms of a model, and what is not."""

from typing import Annotated

import typer

from k31ctl.cli.options import JsonOpt, ProfilesOpt

SubjectArg = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A model or draft profile, OWNER/NAME, or a folder of weights."
    ),
]
HeldOpt = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="What a folder without a record holds."),
]


def licence(
    subject: SubjectArg,
    model: HeldOpt = None,
    profiles: ProfilesOpt = None,
    *,
    as_json: JsonOpt = False,
) -> None:
    """Say what is known of a model's terms, with sources, and what is not known."""
    from k31ctl.api import checkpoints
    from k31ctl.report.licence import show_terms

    found = checkpoints.licence(subject, model=model, profiles=profiles or ())
    show_terms(found, subject=subject, as_json=as_json)
