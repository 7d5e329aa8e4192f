"""A command, given as its words, read as the engine's release would read it."""

from collections.abc import Mapping, Sequence

from k31ctl.core.argument_reader import Reading, read_arguments
from k31ctl.core.argument_words import Word, grammar_of
from k31ctl.core.flags import Flag, FlagCatalog
from k31ctl.core.launch import Form, Launch, Problem, Program, ReadProblem, Setting
from k31ctl.core.launch_checks import check_environment, check_settings
from k31ctl.core.launch_form import Call
from k31ctl.core.tokenspeed_words import split_words
from k31ctl.core.vllm_words import prepare_vllm_words

_CONFIG_FLAG = "--config"
_SGLANG_MODEL_TYPE = Flag(names=("--model-type",), dest="model_type")
_WRAPPED_BY_DYNAMO = (Form.DYNAMO_VLLM, Form.DYNAMO_SGLANG)
_MODEL_DESTS = ("model_tag", "model_path", "model")


def read_launch(
    words: Sequence[str],
    call: Call,
    catalog: FlagCatalog,
    *,
    environment: Mapping[str, str] | None = None,
) -> Launch:
    """Return what the release makes of the words behind ``call``, with all that is wrong.

    ``environment`` is what was exported before; what the command itself sets goes above it.
    """
    given = [Word(text=w, positions=(at,)) for at, w in enumerate(words) if at >= call.start]
    reading = _read(given, call.form, catalog)
    variables = {**(environment or {}), **call.environment}
    problems = [
        *reading.problems,
        *_config_files(reading.settings),
        *check_settings(reading.settings, catalog),
        *check_environment(variables, catalog),
    ]
    return Launch(
        engine=catalog.engine,
        version=catalog.version,
        form=call.form,
        words=tuple(words),
        start=call.start,
        wrapper=tuple(words[: call.first]),
        environment=variables,
        settings=reading.settings,
        problems=tuple(sorted(problems, key=lambda found: found.positions[:1] or (len(words),))),
        model=_model(reading.settings),
    )


def _read(words: Sequence[Word], form: Form, catalog: FlagCatalog) -> Reading:
    match form:
        case Form.VLLM_SERVE | Form.VLLM_MODULE | Form.DYNAMO_VLLM:
            return _read_vllm(words, form, catalog)
        case Form.TOKENSPEED_SERVE:
            return _read_tokenspeed(words, catalog)
        case Form.SGLANG_ROUTER:
            flags = catalog.gateway.flags if catalog.gateway else ()
            return _read_plain(words, flags, catalog, Program.GATEWAY)
        case Form.SGLANG_SERVE | Form.SGLANG_MODULE | Form.DYNAMO_SGLANG:
            return _read_sglang(words, form, catalog)


def _read_plain(
    words: Sequence[Word], flags: tuple[Flag, ...], catalog: FlagCatalog, program: Program
) -> Reading:
    grammar = grammar_of(flags, engine=catalog.engine, abbreviations=catalog.abbreviations)
    return read_arguments(words, grammar, program=program)


def _read_vllm(words: Sequence[Word], form: Form, catalog: FlagCatalog) -> Reading:
    prepared = prepare_vllm_words(words, model_first=form is Form.VLLM_SERVE)
    flags = catalog.flags
    if form is not Form.VLLM_SERVE:
        flags = tuple(flag for flag in flags if flag.names)
    reading = _read_plain(prepared.words, flags, catalog, Program.ENGINE)
    problems = (*prepared.problems, *reading.problems)
    return _as_dynamo(Reading(settings=reading.settings, problems=problems), form)


def _read_sglang(words: Sequence[Word], form: Form, catalog: FlagCatalog) -> Reading:
    given = list(words)
    flags = catalog.flags
    if form is Form.SGLANG_SERVE:
        flags = (*flags, _SGLANG_MODEL_TYPE)
        if given and not given[0].text.startswith("-"):
            given.insert(0, Word(text="--model-path", positions=()))
    return _as_dynamo(_read_plain(given, flags, catalog, Program.ENGINE), form)


def _as_dynamo(reading: Reading, form: Form) -> Reading:
    """Leave out what the wrapper takes for itself: flags that the engine does not know."""
    if form not in _WRAPPED_BY_DYNAMO:
        return reading
    own = (Problem.UNKNOWN_FLAG, Problem.MISSING_FLAG)
    kept = tuple(found for found in reading.problems if found.problem not in own)
    return Reading(settings=reading.settings, problems=kept)


def _read_tokenspeed(words: Sequence[Word], catalog: FlagCatalog) -> Reading:
    orchestrator = catalog.orchestrator
    if orchestrator is None:
        return _read_plain(words, catalog.flags, catalog, Program.ENGINE)
    split = split_words(words, orchestrator, engine_flags=catalog.flags)
    gateway_flags = catalog.gateway.flags if catalog.gateway else ()
    engine = _read_plain(split.engine, catalog.flags, catalog, Program.ENGINE)
    own = _read_plain(split.orchestrator, orchestrator.flags, catalog, Program.ORCHESTRATOR)
    gateway = _read_plain(split.gateway, gateway_flags, catalog, Program.GATEWAY)
    readings = (engine, own, gateway)
    settings = sorted(
        (setting for reading in readings for setting in reading.settings),
        key=lambda setting: setting.positions[:1],
    )
    problems = (
        *split.problems,
        *engine.problems,
        *own.problems,
        *(_late(found) for found in gateway.problems),
    )
    return Reading(settings=tuple(settings), problems=problems)


def _late(found: ReadProblem) -> ReadProblem:
    """Say that an unknown flag is only refused by the gateway, when the engine is loaded."""
    if found.problem is not Problem.UNKNOWN_FLAG:
        return found
    return ReadProblem(
        problem=Problem.TO_GATEWAY,
        subject=found.subject,
        message=f"{found.subject.partition('=')[0]} is no flag of the engine, so the gateway "
        "gets it, and it does not know it either",
        positions=found.positions,
        candidates=found.candidates,
    )


def _config_files(settings: Sequence[Setting]) -> list[ReadProblem]:
    return [
        ReadProblem(
            problem=Problem.CONFIG_FILE,
            subject=_CONFIG_FLAG,
            message=f"the flags in {setting.words[0]} are not read here",
            positions=setting.positions,
        )
        for setting in settings
        if setting.flag == _CONFIG_FLAG and setting.words
    ]


def _model(settings: Sequence[Setting]) -> str:
    """Return the model of the launch, or nothing where it names none."""
    for setting in reversed(settings):
        if setting.dest in _MODEL_DESTS and isinstance(setting.value, str):
            return setting.value
    return ""
