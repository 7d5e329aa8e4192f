"""Flags of an installed engine, from small packages that are built as the engines are."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from k31ctl.catalog import Store
from k31ctl.catalog.flag_text import catalog_text
from k31ctl.catalog.flags import find_flags
from k31ctl.core.flags import Flag
from k31ctl.errors import InputError, UsageError
from k31ctl.host.engine_flags import extract_flags

SGLANG = {
    "sglang/__init__.py": "__version__ = '9.1'\nNAME = 'SGLANG_ONLY_IN_SOURCE'\n",
    "sglang/srt/__init__.py": "",
    "sglang/srt/server_args.py": """
import argparse, json
print("a word on standard output")
class OldAction(argparse._StoreTrueAction):
    pass
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", required=True)
        parser.add_argument("--tp-size", "--tensor-parallel-size", type=int, default=1)
        parser.add_argument("--dtype", choices={"bfloat16", "auto"}, default="auto")
        parser.add_argument("--enable-x", action=argparse.BooleanOptionalAction)
        parser.add_argument("--old", action=OldAction, help="Deprecated: gone soon")
        parser.add_argument("--secret", help=argparse.SUPPRESS, nargs="+", type=json.loads)
""",
    "sglang/srt/arg_groups/__init__.py": "",
    "sglang/srt/arg_groups/choices.py": "SOME_CHOICES = ['a', 'b']\n",
    "sglang/srt/arg_groups/fields/parallel.py": "class Parallel:\n    tp_size: int = 1\n",
    "sglang/srt/environ.py": """
from pathlib import Path
class EnvInt:
    def __init__(self, default): self.default = default
class Envs:
    SGLANG_PORTS = EnvInt(3)
    SGLANG_CACHE = EnvInt(str(Path.home() / "cache"))
envs = Envs()
""",
}
VLLM = {
    "vllm/__init__.py": "__version__ = '9.2.0'\n",
    "vllm/utils/__init__.py": "",
    "vllm/utils/argparse_utils.py": """
import argparse
class FlexibleArgumentParser(argparse.ArgumentParser):
    pass
""",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/common/__init__.py": "",
    "vllm/entrypoints/common/cli_args.py": """
def optional_type(return_type):
    def _optional_type(word):
        return None if word == "None" else return_type(word)
    return _optional_type
def make_arg_parser(parser):
    group = parser.add_argument_group("ParallelConfig")
    parser.add_argument("model_tag", nargs="?")
    group.add_argument("--tensor-parallel-size", "-tp", type=int, default=1)
    group.add_argument("--seed", type=optional_type(int))
    return parser
""",
    "vllm/config/__init__.py": """
from dataclasses import dataclass, field
from typing import Literal, Optional
@dataclass
class AttentionConfig:
    backend: Optional[str] = None
    mode: Literal["a", "b"] = "a"
    sizes: list[int] = field(default_factory=lambda: [1, 2])
""",
    "vllm/envs.py": """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    VLLM_PORT: int | None = None
    VLLM_DEBUG: bool = False
environment_variables = {"VLLM_PORT": None, "VLLM_DEBUG": None}
""",
}
TOKENSPEED = {
    "tokenspeed/__init__.py": "NAME = 'TOKENSPEED_ONLY_IN_SOURCE'\n",
    "tokenspeed-9.3.dist-info/METADATA": "Metadata-Version: 2.1\nName: tokenspeed\nVersion: 9.3\n",
    "tokenspeed/cli/__init__.py": "",
    "tokenspeed/cli/_argsplit.py": """
_ORCH_FLAGS = {"--drain-timeout", "--control-port"}
_FANOUT_FLAGS = {"--model"}
_ALIASES = {"--tp": "--tensor-parallel-size"}
_GATEWAY_USER_FACING = {"--port", "--host"}
_GATEWAY_OVERRIDE = {"--tool-call-parser"}
_ENGINE_MULTI_VALUE_FLAGS = {"--capture-sizes"}
class OrchestratorOpts:
    drain_timeout = 30
    control_port = None
""",
    "tokenspeed/runtime/__init__.py": "",
    "tokenspeed/runtime/utils/__init__.py": "",
    "tokenspeed/runtime/utils/env.py": """
class EnvBool:
    def __init__(self, default): self.default = default
class Envs:
    TOKENSPEED_CHECK = EnvBool(False)
envs = Envs()
""",
    "tokenspeed/runtime/utils/server_args.py": """
import argparse
from tokenspeed_kernel.ops.attention import CHUNK
from tokenspeed_kernel.platform import current_platform
import flashinfer.sampling
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        parser.allow_abbrev = False
        parser.add_argument("--model", required=True)
        parser.add_argument("--block-sizes", type=int, nargs="+")
        parser.add_argument("--memory", type=int, default=current_platform().total_memory)
""",
    "tokenspeed_kernel/__init__.py": "raise RuntimeError('there is no GPU')\n",
    "tokenspeed_kernel/ops/__init__.py": "raise RuntimeError('there is no compiler')\n",
    "tokenspeed_kernel/platform.py": """
from dataclasses import dataclass
from typing import Any
class ArchVersion(tuple):
    def __new__(cls, *parts): return super().__new__(cls, parts)
@dataclass
class PlatformInfo:
    vendor: str
    arch_version: Any
    device_name: str
    device_count: int
    total_memory: int
    memory_bandwidth: float
    sm_count: int
    max_threads_per_sm: int
    max_shared_memory_per_sm: int
def _detect_platform(): raise RuntimeError("no GPU was found")
def current_platform(): return _detect_platform()
""",
    "smg/__init__.py": "",
    "smg/router_args.py": """
class RouterArgs:
    @staticmethod
    def add_cli_args(parser, use_router_prefix):
        parser.add_argument("--policy", choices=["random", "least"])
""",
    "tokenspeed_smg-9.4.dist-info/METADATA": "Metadata-Version: 2.1\nName: tokenspeed-smg\n"
    "Version: 9.4\n",
}


def interpreter(folder: Path, files: dict[str, str]) -> str:
    """An interpreter that finds these packages, and those of nobody else."""
    for name, text in files.items():
        path = folder / "packages" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    python = folder / "python"
    packages = folder / "packages"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return str(python)


def extracted(folder: Path, engine: str, files: dict[str, str]) -> dict[str, Any]:
    return extract_flags(engine, python=interpreter(folder, files), checked="2026-11-29")


def test_the_catalog_of_an_installed_engine_is_used_like_the_packaged_ones(tmp_path: Path) -> None:
    found = extracted(tmp_path, "sglang", SGLANG)
    (tmp_path / "flags").mkdir()
    (tmp_path / "flags" / "sglang-9.1.json").write_text(catalog_text(found))
    catalog = find_flags(Store((tmp_path,)), "sglang").catalog
    flags = {flag.name: flag for flag in catalog.flags}
    assert flags["--tp-size"] == Flag(
        names=("--tp-size", "--tensor-parallel-size"),
        dest="tp_size",
        type="int",
        default=1,
        group="parallel",
    )
    assert flags["--model-path"].required
    assert flags["--dtype"].choices == ("auto", "bfloat16")
    assert flags["--enable-x"].names == ("--enable-x", "--no-enable-x")
    assert flags["--enable-x"].negates("--no-enable-x")
    assert (flags["--old"].action, flags["--old"].deprecated) == ("store_true:OldAction", True)
    assert (flags["--secret"].hidden, flags["--secret"].type) == (True, "loads")
    assert catalog.choice_lists == {"SOME_CHOICES": ("a", "b")}
    assert catalog.environment_variables["SGLANG_PORTS"].default == 3
    assert catalog.environment_variables["SGLANG_CACHE"].default == "~/cache"
    assert catalog.reads_environment("SGLANG_ONLY_IN_SOURCE")


def test_the_configuration_objects_of_vllm_are_read_with_their_fields(tmp_path: Path) -> None:
    found = extracted(tmp_path, "vllm", VLLM)
    assert found["id"] == "vllm-9.2.0"
    fields = found["config_objects"]["--attention-config"]["fields"]
    assert fields == {
        "backend": {"type": "str | NoneType"},
        "mode": {"type": "Literal['a', 'b']", "default": "a"},
        "sizes": {"type": "list[int]", "default": [1, 2]},
    }
    types = {row["dest"]: row.get("type", "str") for row in found["flags"]}
    assert types["seed"] == "_optional_type[int]"
    assert types["model_tag"] == "str"
    assert found["environment_variables"]["VLLM_DEBUG"] == {"type": "bool", "default": "False"}


def test_an_engine_whose_kernels_want_a_gpu_is_read_without_one(tmp_path: Path) -> None:
    found = extracted(tmp_path, "tokenspeed", TOKENSPEED)
    assert (found["id"], found["abbreviations"]) == ("tokenspeed-9.3", False)
    assert "a made-up sm_103" in found["method"]
    assert found["stubbed_modules"] == [
        "flashinfer",
        "flashinfer.sampling",
        "tokenspeed_kernel.ops",
        "tokenspeed_kernel.ops.attention",
    ]
    defaults = {row["dest"]: row.get("default") for row in found["flags"]}
    assert defaults["memory"] == 288 * 10**9


def test_the_launcher_and_the_gateway_of_an_engine_are_read_with_it(tmp_path: Path) -> None:
    found = extracted(tmp_path, "tokenspeed", TOKENSPEED)
    (tmp_path / "flags").mkdir()
    (tmp_path / "flags" / "tokenspeed-9.3.json").write_text(catalog_text(found))
    catalog = find_flags(Store((tmp_path,)), "tokenspeed").catalog
    assert catalog.gateway is not None
    assert catalog.orchestrator is not None
    assert (catalog.gateway.package, catalog.gateway.version) == ("tokenspeed-smg", "9.4")
    assert [flag.name for flag in catalog.orchestrator.flags] == [
        "--control-port",
        "--drain-timeout",
    ]
    assert catalog.orchestrator.to_gateway == ("--host", "--port", "--tool-call-parser")
    assert catalog.reads_environment("TOKENSPEED_CHECK")
    assert catalog.reads_environment("TOKENSPEED_ONLY_IN_SOURCE")


def test_two_extractions_are_the_same_to_the_byte(tmp_path: Path) -> None:
    texts = {catalog_text(extracted(tmp_path, "sglang", SGLANG)) for _ in range(2)}
    assert len(texts) == 1
    assert json.loads(texts.pop())["version"] == "9.1"


def test_an_interpreter_without_the_engine_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        extracted(tmp_path, "vllm", {"other.py": ""})
    assert "No module named 'vllm'" in caught.value.what
    assert "import vllm" in caught.value.remedy


def test_an_interpreter_that_is_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be started"):
        extract_flags("vllm", python=str(tmp_path / "none"), checked="2026-11-29")


def test_an_engine_that_is_not_asked_is_a_mistake() -> None:
    with pytest.raises(UsageError, match="llama"):
        extract_flags("llama", python="", checked="2026-11-29")
