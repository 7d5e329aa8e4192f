"""Tiny checkpoints, written once, and the models that they hold."""

from collections.abc import Callable
from pathlib import Path

import pytest

from k31ctl.catalog import Store, default_folders
from k31ctl.tiny.checkpoint import write_tiny

torch = pytest.importorskip("torch", reason="the extra engine is not installed")

Tiny = Callable[[str], Path]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Two threads on two busy cores wait for each other more than they compute."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """The folder of a tiny checkpoint, by the name of its model."""
    root = tmp_path_factory.mktemp("tiny")

    def folder(model: str) -> Path:
        place = root / model
        if not place.exists():
            write_tiny(Store(default_folders()), place, model=model, seed=7)
        return place

    return folder
