"""Programs that we did not write, imported quietly; a test that needs a missing one is skipped."""

import importlib
import importlib.util
import sys
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@cache
def oracle(name: str) -> Any:
    """A module of an oracle."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            pytest.skip(f"the oracle {name} does not import here: {error}"[:160])


@cache
def transformers(name: str = "transformers") -> Any:
    """A module of Transformers, bound to its plain torch code: fla's kernels need a GPU."""
    hidden, found = object(), sys.modules.get("fla")
    before = found if "fla" in sys.modules else hidden
    sys.modules["fla"] = None  # type: ignore[assignment]
    try:
        return oracle(name)
    finally:
        if before is hidden:
            del sys.modules["fla"]
        else:
            sys.modules["fla"] = before  # type: ignore[assignment]


@cache
def fla_naive_kda() -> ModuleType:
    """The file of fla that states KDA in plain torch, without its package, which wants Triton."""
    found = importlib.util.find_spec("fla")
    if found is None or found.origin is None:
        pytest.skip("the oracle fla-core is not installed")
    oracle("einops")
    path = Path(found.origin).parent / "ops" / "kda" / "naive.py"
    spec = importlib.util.spec_from_file_location("fla_naive_kda", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
