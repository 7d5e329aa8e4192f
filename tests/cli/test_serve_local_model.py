"""``k31ctl serve`` with a model that is a file or a folder."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from k31ctl.catalog.store import Kind
from tests.serve.launches import STORE

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of Kimi K3 without any weights."""
    profile = yaml.safe_load(STORE.paths(Kind.MODELS)["kimi-k3"].read_text())
    path = tmp_path / "ck" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(profile["config"]))
    return path


@pytest.mark.parametrize("named", ["folder", "file"])
def test_a_checkpoint_is_served_by_its_whole_path(k31ctl: Run, config: Path, named: str) -> None:
    (config.parent / "model-00001-of-00001.safetensors").touch()
    done = k31ctl("serve", str(config if named == "file" else config.parent))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f'exec vllm serve {config.parent} "${{args[@]}}"\n')
    assert "--served-model-name ck" in done.stdout


def test_a_configuration_alone_needs_the_folder_of_its_weights(k31ctl: Run, config: Path) -> None:
    lone = config.rename(config.parent / "moonshotai--Kimi-K3.config.json")
    done = k31ctl("serve", str(lone))
    assert (done.returncode, done.stdout) == (2, "")
    assert "--model-path DIR" in done.stderr
    given = k31ctl("serve", str(lone), "--model-path", "/weights/k3")
    assert (given.returncode, given.stderr) == (0, "")
    assert given.stdout.endswith('exec vllm serve /weights/k3 "${args[@]}"\n')
