"""Settings to words and back: what is written is read as it was meant."""

import string
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k31ctl.core.flag_values import flag_value, is_json
from k31ctl.core.flags import Flag, FlagCatalog
from k31ctl.core.launch import Stage
from k31ctl.core.launch_form import find_call
from k31ctl.core.read_launch import read_launch
from k31ctl.core.write_launch import all_spellings, flag_words, write_settings
from tests.core.catalogs import CATALOGS, ENGINES

FORMS = {"vllm": "vllm serve MODEL", "sglang": "sglang serve MODEL", "tokenspeed": "ts serve MODEL"}
MODEL_DESTS = {"model", "model_tag", "model_path"}
# What a value of these types must look like is told by no catalog.
HOLD_LITTLE = {"parse_cuda_graph_config_arg", "parse_cuda_graph_backend_arg"}
TEXT = st.text(string.ascii_letters + string.digits + "/._:$`'\"(){}* \n", min_size=1, max_size=12)
JSON = st.dictionaries(TEXT, st.one_of(st.integers(), st.booleans(), TEXT), max_size=3)

# The launcher passes these on with one word each, whatever the gateway's own parser takes.
ONE_WORD = {flag.name for flag in getattr(CATALOGS["tokenspeed"].gateway, "flags", ())}
WHOLE = st.integers(0, 60_000)
NUMBERS: dict[str, st.SearchStrategy[Any]] = {
    "int": WHOLE,
    "_uint16": WHOLE,
    "human_readable_int": WHOLE,
    "human_readable_int_or_auto": WHOLE,
    "float": st.floats(0, 1e6),
    "str_to_bool": st.booleans(),
    "_parse_int_csv": st.lists(st.integers(0, 99), min_size=1),
}


def is_plain(flag: Flag) -> bool:
    return bool(flag.names) and flag.dest not in MODEL_DESTS and flag.type not in HOLD_LITTLE


def one_value(flag: Flag) -> st.SearchStrategy[Any]:
    """One value as the engine would hold it after reading."""
    if flag.choices is not None:
        return st.sampled_from([choice for choice in flag.choices if choice is not None])
    if is_json(flag):
        return JSON
    kind = flag.type.removeprefix("_optional_type[").removesuffix("]")
    if kind in NUMBERS:
        return NUMBERS[kind]
    return TEXT.filter(lambda t: bool(t.strip()) and flag_value(flag, t, engine="vllm") == t)


def some_value(flag: Flag) -> st.SearchStrategy[Any]:
    if flag.is_switch:
        return st.booleans()
    if flag.nargs == 0:
        return st.just({"store_true": True, "store_false": False}.get(flag.action, flag.const))
    if flag.nargs in ("*", "+"):
        most = 1 if flag.name in ONE_WORD else 3
        return st.lists(one_value(flag), min_size=1, max_size=most).map(tuple)
    if flag.nargs == 1:
        return one_value(flag).map(lambda value: (value,))
    return one_value(flag)


def assert_read_back(catalog: FlagCatalog, chosen: dict[str, Any]) -> None:
    words = (*FORMS[catalog.engine].split(), *write_settings(chosen, catalog))
    call = find_call(words)
    assert call is not None
    launch = read_launch(words, call, catalog)
    assert [p.message for p in launch.problems if p.stage is Stage.PARSING] == []
    assert {s.flag: s.value for s in launch.settings if s.dest not in MODEL_DESTS} == chosen
    assert launch.model == "MODEL"


def flags_of(engine: str) -> list[Flag]:
    found = {id(flag): flag for flag in all_spellings(CATALOGS[engine]).values()}
    by_dest = {flag.dest: flag for flag in found.values() if is_plain(flag)}
    return list(by_dest.values())


def an_example(flag: Flag) -> Any:
    """A value that no default is likely to be, the same in every run."""
    if flag.is_switch:
        return False
    if flag.nargs == 0:
        return {"store_true": True, "store_false": False}.get(flag.action, flag.const)
    kind = flag.type.removeprefix("_optional_type[").removesuffix("]")
    examples = {"float": 0.25, "str_to_bool": False, "_parse_int_csv": [3, 4], "loads": {"k": 1}}
    one: Any = examples.get(kind, 7) if kind in {*NUMBERS, "loads"} else "a $(b) 'c'"
    if flag.choices is not None:
        one = [choice for choice in flag.choices if choice is not None][-1]
    elif is_json(flag):
        one = {"key": "a 'b'", "n": 1}
    return (one,) if flag.nargs in ("*", "+", 1) else one


@pytest.mark.parametrize("engine", ENGINES)
def test_every_flag_is_read_as_it_was_written(engine: str) -> None:
    for flag in flags_of(engine):
        assert_read_back(CATALOGS[engine], {flag.name: an_example(flag)})


@pytest.mark.parametrize("engine", ENGINES)
def test_every_switch_is_read_as_it_was_written(engine: str) -> None:
    switches = {flag.name: True for flag in flags_of(engine) if flag.is_switch}
    assert switches
    assert_read_back(CATALOGS[engine], switches)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_several_flags_are_read_as_they_were_written(engine: str, data: st.DataObject) -> None:
    flags = data.draw(st.lists(st.sampled_from(flags_of(engine)), max_size=6, unique_by=id))
    chosen = {flag.name: data.draw(some_value(flag)) for flag in flags}
    assert_read_back(CATALOGS[engine], chosen)


CAPTURED = ("--prefill-graph-capture-sizes", "1", "2")


@pytest.mark.parametrize(
    ("engine", "name", "value", "words"),
    [
        ("vllm", "--enable-prefix-caching", False, ("--disable-prefix-caching",)),
        ("vllm", "--disable-hybrid-kv-cache-manager", True, ("--disable-hybrid-kv-cache-manager",)),
        ("vllm", "--disable-hybrid-kv-cache-manager", False, ("--enable-hybrid-kv-cache-manager",)),
        ("vllm", "--trust-remote-code", True, ("--trust-remote-code",)),
        ("vllm", "--attention-config", {"a": True}, ("--attention-config", '{"a":true}')),
        ("vllm", "--watermark", -0.5, ("--watermark=-0.5",)),
        (
            "tokenspeed",
            "--cudagraph-capture-sizes",
            (1, 2),
            ("--cudagraph-capture-sizes", "1", "2"),
        ),
        ("tokenspeed", "--drain-timeout", 60, ("--drain-timeout", "60")),
        ("sglang", "--tp-size", 8, ("--tp-size", "8")),
    ],
)
def test_a_setting_is_written_in_its_documented_spelling(
    engine: str, name: str, value: object, words: tuple[str, ...]
) -> None:
    assert write_settings({name: value}, CATALOGS[engine]) == words


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("--no-such-flag", 1),
        ("--trust-remote-code", "yes"),
        ("--tensor-parallel-size", None),
        ("--tensor-parallel-size", [8]),
        ("--served-model-name", "one"),
        ("--served-model-name", ["-one"]),
        ("--aggregate-engine-logging", False),
    ],
)
def test_what_no_word_can_say_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        write_settings({name: value}, CATALOGS["vllm"])


def test_what_would_read_as_a_flag_once_passed_on_is_refused() -> None:
    with pytest.raises(ValueError, match="reads as a flag"):
        write_settings({"--chat-template": "--x"}, CATALOGS["tokenspeed"])


def test_a_flag_in_hand_is_written_without_its_catalog() -> None:
    flag = Flag(names=("--size", "-s"), dest="size", type="int")
    assert flag_words(flag, -3) == ("--size=-3",)
