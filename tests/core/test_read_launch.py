"""Commands as people write them, and what each engine makes of them."""

import pytest

from k31ctl.core.flag_values import human_number
from k31ctl.core.launch import Form, Program, Stage
from k31ctl.core.launch_form import find_call
from tests.core.catalogs import launch, problems

MODEL = "moonshotai/Kimi-K3"
VLLM = ("vllm", "serve", MODEL)
SGLANG = ("sglang", "serve", MODEL)
TS = ("ts", "serve", MODEL)


@pytest.mark.parametrize(
    ("command", "form", "start", "environment"),
    [
        ("vllm serve M", Form.VLLM_SERVE, 2, {}),
        ("/opt/venv/bin/vllm serve M", Form.VLLM_SERVE, 2, {}),
        ("exec vllm serve M", Form.VLLM_SERVE, 3, {}),
        ("nohup env A=1 B=x=y vllm serve M", Form.VLLM_SERVE, 6, {"A": "1", "B": "x=y"}),
        ("A=1 numactl -N 0 -m 0 vllm serve M", Form.VLLM_SERVE, 8, {"A": "1"}),
        ("srun --ntasks 2 --job-name vllm vllm serve M", Form.VLLM_SERVE, 7, {}),
        ("python -m vllm.entrypoints.openai.api_server", Form.VLLM_MODULE, 3, {}),
        ("python3.12 -u -X dev -m sglang.launch_server", Form.SGLANG_MODULE, 6, {}),
        ("python3 -m sglang_router.launch_router", Form.SGLANG_ROUTER, 3, {}),
        ("python3 -m vllm serve M", Form.VLLM_SERVE, 4, {}),
        ("sglang serve M", Form.SGLANG_SERVE, 2, {}),
        ("ts serve M", Form.TOKENSPEED_SERVE, 2, {}),
        ("tokenspeed serve M", Form.TOKENSPEED_SERVE, 2, {}),
        ("python3 -m dynamo.vllm --model M", Form.DYNAMO_VLLM, 3, {}),
    ],
)
def test_the_call_is_found_behind_any_wrapper(
    command: str, form: Form, start: int, environment: dict[str, str]
) -> None:
    call = find_call(command.split())
    assert call is not None
    assert (call.form, call.start, call.environment) == (form, start, environment)


@pytest.mark.parametrize("command", ["", "echo vllm", "vllm bench M", "python -m http.server"])
def test_a_command_that_starts_no_engine_is_none(command: str) -> None:
    assert find_call(command.split()) is None


@pytest.mark.parametrize(
    ("words", "flag", "value"),
    [
        (["-tp", "8"], "--tensor-parallel-size", 8),
        (["--tensor_parallel_size=8"], "--tensor-parallel-size", 8),
        (["--max-model-len", "1M"], "--max-model-len", 2**20),
        (["--max-model-len", "8k"], "--max-model-len", 8000),
        (["--max-model-len", "auto"], "--max-model-len", -1),
        (["-O3"], "--optimization-level", "3"),
        (["-O", "2"], "--optimization-level", "2"),
        (["--moe-backend", "DEEP-GEMM-MEGA-MOE"], "--moe-backend", "deep_gemm_mega_moe"),
        (["--no-enable-prefix-caching"], "--enable-prefix-caching", False),
        (["--enable-prefix-caching"], "--enable-prefix-caching", True),
        (["-ac.use_prefill_query_quantization=true"], "--attention-config", None),
        (
            ["--attention-config.use_prefill_query_quantization=true"],
            "--attention-config",
            {"use_prefill_query_quantization": True},
        ),
        (
            ["--compilation-config.custom_ops+", "+a,-b", "--compilation_config.mode", "3"],
            "--compilation-config",
            {"custom_ops": ["+a", "-b"], "mode": 3},
        ),
        (
            ["--kv-transfer-config", '{"kv_buffer_size": 1k, "kv_role": "1k"}'],
            "--kv-transfer-config",
            {"kv_buffer_size": 1000, "kv_role": "1k"},
        ),
    ],
)
def test_vllm_reads_its_own_ways_of_writing(words: list[str], flag: str, value: object) -> None:
    read = launch(*VLLM, *words)
    assert read.accepted
    if value is not None:
        assert read.value(flag) == value


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ((*VLLM, "--no-such-flag", "3"), [("unknown-flag", "--no-such-flag")]),
        ((*VLLM, "--tensor-parallel-size"), [("missing-value", "--tensor-parallel-size")]),
        ((*VLLM, "-tp", "eight"), [("bad-type", "--tensor-parallel-size")]),
        ((*VLLM, "--max-model-len", "1.5M"), [("bad-type", "--max-model-len")]),
        ((*VLLM, "--dtype", "int3"), [("bad-choice", "--dtype")]),
        ((*VLLM, "-tp", "8", "-tp", "4"), [("repeated-flag", "--tensor-parallel-size")]),
        ((*VLLM, "--tensor-par", "8"), [("abbreviated-flag", "--tensor-par")]),
        ((*VLLM, "stray"), [("unexpected-word", "stray")]),
        ((*VLLM, "--trust-remote-code=yes"), [("unwanted-value", "--trust-remote-code")]),
        ((*VLLM, "--reasoning-parser", "kimi"), [("bad-runtime-choice", "--reasoning-parser")]),
        ((*VLLM, "-ac", '{"use_x": 1}'), [("unknown-field", "--attention-config.use_x")]),
        ((*VLLM, "-ac", "{"), [("bad-type", "--attention-config")]),
        ((*VLLM, "--config", "f.yaml"), [("config-file", "--config")]),
        (
            (*VLLM, "--no-enable-prefix-caching"),
            [("hidden-spelling", "--no-enable-prefix-caching")],
        ),
        (
            (*VLLM, "--attention-config", "{}", "--attention-config.backend=X"),
            [("overridden-object", "--attention-config"), ("repeated-flag", "--attention-config")],
        ),
        ((*SGLANG, "--cuda-graph-max-bs", "256"), [("ambiguous-flag", "--cuda-graph-max-bs")]),
        (("python3", "-m", "sglang.launch_server"), [("missing-flag", "--model-path")]),
        ((*SGLANG, "--enable-dp-attention"), [("deprecated-flag", "--enable-dp-attention")]),
        ((*SGLANG, "--tp_size", "8"), [("unknown-flag", "--tp_size")]),
        (
            (*TS, "--tensor-paralel-size", "8"),
            [("unknown-flag-to-gateway", "--tensor-paralel-size")],
        ),
        ((*TS, "--max-num-seq", "8"), [("unknown-flag-to-gateway", "--max-num-seq")]),
        ((*TS, "--model", "other"), [("model-twice", "--model"), ("repeated-flag", "--model")]),
        ((*TS, "--drain-timeout", "soon"), [("bad-type", "--drain-timeout")]),
    ],
    ids=lambda value: " ".join(value[2:]) if isinstance(value, tuple) else "",
)
def test_each_mistake_is_told_once_by_its_kind(
    command: tuple[str, ...], found: list[tuple[str, str]]
) -> None:
    assert sorted(problems(*command)) == sorted(found)


def test_a_mistake_points_at_its_words_and_says_what_it_could_mean() -> None:
    command = (*SGLANG, "--tp-size", "8", "--cuda-graph-max-bs", "256")
    (found,) = launch(*command).problems
    assert found.positions == (5, 6)
    assert found.candidates == ("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs-prefill")
    assert found.stage is Stage.PARSING


def test_a_variable_with_the_engines_name_that_nothing_reads_is_told() -> None:
    assert problems(*VLLM, VLLM_NO_SUCH="1", NCCL_DEBUG="INFO") == [
        ("unread-variable", "VLLM_NO_SUCH")
    ]
    assert problems("env", "VLLM_USE_RUST_FRONTEND=1", *VLLM) == []


def test_each_flag_of_tokenspeed_goes_to_its_program() -> None:
    read = launch(*TS, "--tp", "8", "--port", "8000", "--drain-timeout", "5", "--policy", "random")
    programs = {s.flag: s.program for s in read.settings}
    assert programs["--tensor-parallel-size"] is Program.ENGINE
    assert programs["--port"] is Program.GATEWAY
    assert programs["--policy"] is Program.GATEWAY
    assert programs["--drain-timeout"] is Program.ORCHESTRATOR
    assert read.model == MODEL
    assert read.accepted


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_model_is_found_in_front_and_behind_its_flag(engine: str) -> None:
    flag = {"vllm": "--model", "sglang": "--model-path"}[engine]
    for words in ([MODEL, "--trust-remote-code"], ["--trust-remote-code", flag, MODEL]):
        read = launch(engine, "serve", *words)
        assert (read.model, read.accepted) == (MODEL, True)


@pytest.mark.parametrize(
    ("word", "vllm", "sglang"),
    [
        ("1k", 1000, 1000),
        ("1K", 1024, None),
        ("1M", 2**20, 10**6),
        ("1m", 10**6, None),
        ("1Ki", None, 1024),
        ("25.6k", 25_600, 25_600),
        ("1.5M", None, 1_500_000),
        (" 7 ", 7, 7),
        ("x", None, None),
    ],
)
def test_the_engines_disagree_on_units(word: str, vllm: int | None, sglang: int | None) -> None:
    for engine, expected in (("vllm", vllm), ("sglang", sglang)):
        if expected is None:
            with pytest.raises(ValueError, match=r"."):
                human_number(word, engine=engine)
        else:
            assert human_number(word, engine=engine) == expected
