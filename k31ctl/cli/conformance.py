"""``k31ctl bench conformance``: whether an endpoint keeps the contract this model needs."""

from enum import StrEnum
from typing import Annotated

import typer

from k31ctl import units
from k31ctl.cli.bench_options import Http2Opt, KeyOpt
from k31ctl.cli.bench_request_options import ModelOpt
from k31ctl.cli.options import JsonOpt, JunitOpt, gate_option, said

_WHAT, _HOW = "Checks", "How"


class Api(StrEnum):
    """The kinds of API that are asked."""

    AUTO = "auto"
    CHAT = "chat"
    MESSAGES = "messages"


EndpointArg = Annotated[
    str,
    typer.Argument(
        metavar="URL", help="An endpoint of chat completions or Messages, with or without /v1."
    ),
]
ApiOpt = Annotated[
    Api,
    typer.Option(
        "--api",
        help="Chat completions, Anthropic's Messages, or whichever answers.",
        rich_help_panel=_HOW,
    ),
]
CheckOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--check",
        metavar="ID",
        help="Run this check alone; may be repeated.",
        rich_help_panel=_WHAT,
    ),
]
SkipOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--skip", metavar="ID", help="Leave this check out; may be repeated.", rich_help_panel=_WHAT
    ),
]
AnswerTokensOpt = Annotated[
    int | None,
    typer.Option(
        "--max-tokens",
        metavar="TOKENS",
        parser=said("--max-tokens", units.parse_tokens),
        help="Room for one answer with its reasoning, else 8192.",
        rich_help_panel=_HOW,
    ),
]
LongestOpt = Annotated[
    int | None,
    typer.Option(
        "--context",
        metavar="TOKENS",
        parser=said("--context", units.parse_tokens),
        help="The longest context, where the endpoint does not tell it.",
        rich_help_panel=_HOW,
    ),
]
CheckTimeoutOpt = Annotated[
    float,
    typer.Option(
        "--check-timeout",
        metavar="SECONDS",
        min=0.5,
        help="The most that one check may take.",
        rich_help_panel=_HOW,
    ),
]
TimeBudgetOpt = Annotated[
    float | None,
    typer.Option(
        "--time-budget",
        metavar="SECONDS",
        min=1.0,
        help="Begin no further check after this time.",
        rich_help_panel=_HOW,
    ),
]


def conformance(
    url: EndpointArg,
    model: ModelOpt = None,
    api: ApiOpt = Api.AUTO,
    check: CheckOpt = None,
    skip: SkipOpt = None,
    max_tokens: AnswerTokensOpt = None,
    context: LongestOpt = None,
    check_timeout: CheckTimeoutOpt = 600.0,
    time_budget: TimeBudgetOpt = None,
    api_key_env: KeyOpt = "K31CTL_API_KEY",
    junit: JunitOpt = None,
    gate: Annotated[list[str] | None, gate_option("inconclusive<=2")] = None,
    *,
    http2: Http2Opt = False,
    as_json: JsonOpt = False,
) -> None:
    """Check whether an endpoint keeps the contract that this model needs.

    k31ctl bench conformance http://127.0.0.1:8000 --junit conformance.xml

    k31ctl bench conformance https://HOST/v1/messages --skip long-context
    """
    from k31ctl.api.measuring import conformance_request
    from k31ctl.bench.conformance.job import conformance as run
    from k31ctl.core.gates import parse_gate
    from k31ctl.report.conformance import show_conformance
    from k31ctl.report.targets import Targets

    gates = [parse_gate(text) for text in gate or ()]
    request = conformance_request(
        url,
        http2=http2,
        model=model,
        api=api.value,
        check=check or (),
        skip=skip or (),
        max_tokens=max_tokens,
        context=context,
        check_timeout=check_timeout,
        time_budget=time_budget,
        api_key_env=api_key_env,
    )
    show_conformance(
        run(request),
        request=request,
        targets=Targets(junit=junit),
        gates=gates,
        as_json=as_json,
    )
