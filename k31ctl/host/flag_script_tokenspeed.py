"""What ``ts serve`` reads, by TokenSpeed's own interpreter; ``flag_script.py`` runs it.

TokenSpeed's kernels look for a GPU while they are
imported; where there is none, a made-up one is described to them and what they then would load is
replaced by modules that do nothing. Neither takes part in parsing, and what was replaced is told.
"""

import argparse
import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

MOST_STUBS = 200
KERNELS = "tokenspeed_kernel"
PLATFORM = f"{KERNELS}.platform"
STUBBABLE = re.compile(
    r"(tokenspeed_(?!smg)\w+|triton|cutlass|cuda|flashinfer|nvtx|tvm_ffi|quack|deep_ep|deep_gemm|"
    r"flash_attn|pynvml|smg_grpc\w*|grpc\w*|xgrammar|torchvision|py_spy|openai_harmony|modelscope|"
    r"peft|torch_memory_saver|viztracer|mooncake)(\.|$)"
)
stubbed: set[str] = set()


class Anything(types.ModuleType):
    """A module whose every attribute is another such, callable, and empty when iterated."""

    __path__: list[str] = []  # noqa: RUF012  as a package has it

    def __getattr__(self, name: str) -> "Anything":
        """Return one more of these, except for what Python itself asks of a module."""
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        child = Anything(f"{self.__name__}.{name}")
        setattr(self, name, child)
        return child

    def __call__(self, *given: Any, **named: Any) -> Any:
        """Return what is decorated, else one more of these."""
        if len(given) == 1 and callable(given[0]) and not named:
            return given[0]
        return Anything(f"{self.__name__}()")

    def __getitem__(self, _key: Any) -> "Anything":
        """Return one more of these."""
        return Anything(f"{self.__name__}[]")

    def __iter__(self) -> Iterator[Any]:
        """Return nothing."""
        return iter(())


class KernelFinder:
    """Finds every module below the kernels, except the one that describes the GPU, as a stub."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        """Return how a kernel's module is made, None for modules of others."""
        if not name.startswith(f"{KERNELS}.") or name == PLATFORM:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> types.ModuleType:
        """Return the stub."""
        stubbed.add(spec.name)
        return Anything(spec.name)

    def exec_module(self, _module: types.ModuleType) -> None:
        """Run nothing."""


def describe_gpu() -> None:
    """Put a made-up Blackwell GPU where the kernels would probe for one."""
    found = importlib.util.find_spec(KERNELS)
    if found is None or found.submodule_search_locations is None:
        return
    package = Anything(KERNELS)
    package.__path__ = list(found.submodule_search_locations)
    sys.modules[KERNELS] = package
    sys.meta_path.insert(0, KernelFinder())
    platform: Any = importlib.import_module(PLATFORM)
    described = platform.PlatformInfo(
        vendor="nvidia",
        arch_version=platform.ArchVersion(10, 3),
        device_name="made up",
        device_count=8,
        total_memory=288 * 10**9,
        memory_bandwidth=8000.0,
        sm_count=148,
        max_threads_per_sm=2048,
        max_shared_memory_per_sm=228 * 1024,
    )
    platform._detect_platform = lambda: described


def import_with_stubs(name: str) -> Any:
    """Return a module, with stubs for compiled helpers that are not installed."""
    for _ in range(MOST_STUBS):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if not STUBBABLE.match(missing) or missing in sys.modules:
                raise
            stub(missing)
    raise ImportError(f"{name} misses more than {MOST_STUBS} modules")


def stub(name: str) -> None:
    """Put a stub for a module and for what it lies in, and forget what was half imported."""
    parts = name.split(".")
    for length in range(1, len(parts) + 1):
        dotted = ".".join(parts[:length])
        try:
            importlib.import_module(dotted)
        except Exception:  # noqa: BLE001  a helper's import may fail in any way
            sys.modules[dotted] = Anything(dotted)
            stubbed.add(dotted)
    for half in [m for m in sys.modules if m.startswith("tokenspeed.")]:
        if getattr(sys.modules[half], "__spec__", None) is None:
            del sys.modules[half]


def orchestrator() -> dict[str, Any]:
    """Return the flags that ``ts serve`` keeps for itself, and where it sends the others."""
    split = importlib.import_module("tokenspeed.cli._argsplit")
    usual = split.OrchestratorOpts()
    rows = []
    for flag in sorted(split._ORCH_FLAGS):
        dest = flag.removeprefix("--").replace("-", "_")
        row = {"names": [flag], "dest": dest, "type": "int", "default": getattr(usual, dest)}
        rows.append({key: value for key, value in row.items() if value is not None})
    return {
        "flags": rows,
        "to_both": sorted(split._FANOUT_FLAGS),
        "to_gateway": sorted(split._GATEWAY_USER_FACING | split._GATEWAY_OVERRIDE),
        "aliases": dict(split._ALIASES),
        "multi_value_engine_flags": sorted(split._ENGINE_MULTI_VALUE_FLAGS),
        "unknown_flags": "sent to the gateway",
    }


def tokenspeed(common: Any) -> dict[str, Any]:
    """Return what ``ts serve`` reads: its engine, its launcher and its gateway."""
    package = importlib.import_module("tokenspeed")
    describe_gpu()
    arguments = import_with_stubs("tokenspeed.runtime.utils.server_args")
    parser = argparse.ArgumentParser(prog="ts serve")
    arguments.ServerArgs.add_cli_args(parser)
    variables = common.maybe("tokenspeed.runtime.utils.env")
    declared = common.declared_variables(getattr(variables, "envs", variables))
    named = common.quoted_names(package, "TOKENSPEED_|TS_")
    found = {
        "version": importlib.metadata.version("tokenspeed"),
        "command": "ts serve  (= tokenspeed serve)",
        "method": "tokenspeed.runtime.utils.server_args.ServerArgs.add_cli_args",
        "abbreviations": parser.allow_abbrev,
        "flags": common.flags_of(parser),
        "environment_variables": declared,
        "environment_names_in_source": [name for name in named if name not in declared],
    }
    gateway = common.router_of("smg.router_args", "tokenspeed-smg")
    if gateway is not None:
        found["gateway"] = gateway
    return {**found, "orchestrator": orchestrator(), "stubbed_modules": sorted(stubbed)}
