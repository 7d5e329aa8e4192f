"""Run by an interpreter that has the engines: commands on standard input, refusals on the other.

Reads a JSON list of commands, each a list of words without the wrapper and the form of the call;
writes a JSON list with the parser's complaint about each, empty where it takes the command.
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from typing import Any

Parse = Callable[[list[str]], Any]


def vllm() -> Parse:
    """The parser of ``vllm serve``, after which the engine makes its own arguments of it."""
    os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    flexible: Any = importlib.import_module("vllm.utils.argparse_utils")
    made = importlib.import_module("vllm.entrypoints.common.cli_args").make_arg_parser(
        flexible.FlexibleArgumentParser(prog="vllm serve")
    )
    engine: Any = importlib.import_module("vllm.engine.arg_utils").AsyncEngineArgs
    return lambda words: engine.from_cli_args(made.parse_args(words))


def sglang() -> Parse:
    """The parser of ``sglang.launch_server``."""
    parser = argparse.ArgumentParser(prog="sglang")
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return parser.parse_args


def tokenspeed() -> Parse:
    """The launcher's split, then the engine's parser and the gateway's."""
    folder = os.environ["K31CTL_FLAG_SCRIPTS"]
    sys.path.insert(0, folder)
    script: Any = importlib.import_module("flag_script_tokenspeed")
    sys.path.remove(folder)
    script.describe_gpu()
    arguments = script.import_with_stubs("tokenspeed.runtime.utils.server_args")
    engine = argparse.ArgumentParser(prog="ts serve")
    arguments.ServerArgs.add_cli_args(engine)
    gateway = argparse.ArgumentParser(prog="smg launch")
    importlib.import_module("smg.router_args").RouterArgs.add_cli_args(
        gateway, use_router_prefix=False
    )
    split: Any = importlib.import_module("tokenspeed.cli._argsplit")

    def parse(words: list[str]) -> None:
        parts = split.split_argv(words)
        engine.parse_args(parts.engine)
        own = [word for word in parts.gateway if word != "--model"]
        gateway.parse_args(own if len(own) == len(parts.gateway) else parts.gateway)

    return parse


def router() -> Parse:
    """The parser of SGLang's router."""
    parser = argparse.ArgumentParser(prog="router")
    kind: Any = importlib.import_module("sglang_router.router_args").RouterArgs
    kind.add_cli_args(parser, use_router_prefix=False)
    return parser.parse_args


PARSERS = {"vllm": vllm, "sglang": sglang, "tokenspeed": tokenspeed, "router": router}


def complaint(parse: Parse, words: list[str]) -> str:
    """What the parser says against a command; empty where it takes it."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            parse(words)
    except SystemExit as end:
        return "" if end.code == 0 else said.getvalue().strip()[-300:] or f"ended with {end.code}"
    except Exception as error:  # noqa: BLE001  an engine's own checks may fail in any way
        return f"{type(error).__name__}: {error}"[:300]
    return ""


if __name__ == "__main__":
    answer = sys.stdout
    sys.stdout = sys.stderr
    commands = json.load(sys.stdin)
    taken = PARSERS[sys.argv[1]]()
    json.dump([complaint(taken, words) for words in commands], answer)
