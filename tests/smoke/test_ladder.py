"""The ladder on good checkpoints and on damaged ones: the right step turns red."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from k31ctl.catalog import Store, default_folders
from k31ctl.core.ladder import Status, Step, first_broken
from k31ctl.smoke.task import Task, chosen_rungs
from k31ctl.smoke.watch import climb
from k31ctl.tiny.checkpoint import write_tiny
from tests.smoke import damage

torch = pytest.importorskip("torch", reason="the extra engine is not installed")

from k31ctl.smoke.session import Session  # noqa: E402  needs torch
from k31ctl.smoke.worker import run_step  # noqa: E402

EXPERT = "language_model.model.layers.1.block_sparse_moe.experts"
LAYER = "language_model.model.layers.2"
Copy = Callable[[], Path]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("smoke") / "tiny"
    write_tiny(Store(default_folders()), folder, model="kimi-k3.1-pro", seed=5)
    return folder


@pytest.fixture(scope="module")
def truth(whole: Path) -> Path:
    """What the layers of the good checkpoint make of numbers that were put in."""
    record = whole.parent / "truth.safetensors"
    (step,) = tried(whole, "layers", record=str(record))
    assert step.status is Status.PASS
    return record


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def climbed(
    folder: Path, *only: str, timeout_s: float | None = None, keep_going: bool = True, **task: Any
) -> list[Step]:
    rungs = chosen_rungs(only=only, skip=())
    asked = Task(folder=str(folder), device="cpu", **task)
    return list(climb(asked, rungs, keep_going=keep_going, timeout_s=timeout_s))


def tried(folder: Path, *only: str, **task: Any) -> list[Step]:
    """The same steps in this process, as the child runs them: what they find is not its doing."""
    session = Session(Task(folder=str(folder), device="cpu", **task))
    return [run_step(session, rung) for rung in chosen_rungs(only=only, skip=())]


def broken(step: Step) -> str:
    found = first_broken(step.measures)
    assert found is not None, step
    return found.name


@pytest.mark.parametrize("model", ["kimi-k3", "kimi-linear"])
def test_the_other_tiny_models_are_green(tmp_path: Path, model: str) -> None:
    write_tiny(Store(default_folders()), tmp_path / model, model=model, seed=5)
    steps = tried(tmp_path / model, "files", "layers", "all", "repeat")
    assert {step.status for step in steps} == {Status.PASS}, steps


def test_bf16_is_green_too(whole: Path) -> None:
    steps = climbed(whole, "device", "expert", "layers", "all", "repeat", dtype="bf16")
    assert {step.status for step in steps} == {Status.PASS}, steps


def test_chosen_layers_are_held_and_nothing_is_said_of_the_rest(whole: Path) -> None:
    steps = tried(whole, "layers", "all", "repeat", layers=(3, 4), experts="packed")
    assert [step.status for step in steps] == [Status.PASS, Status.SKIP, Status.PASS]
    assert {each.name[:7] for each in steps[0].measures} == {"layer 3", "layer 4"}


def test_a_part_of_a_checkpoint_is_tried_as_far_as_it_goes(whole: Path, tmp_path: Path) -> None:
    damage.cut_out(whole, tmp_path / "part", range(2, 5))
    steps = tried(tmp_path / "part", "files", "expert", "layers", "all", "service", "repeat")
    passed = {step.id for step in steps if step.status is Status.PASS}
    assert passed == {"files", "expert", "layers", "repeat"}, steps
    assert {each.name[:7] for each in steps[2].measures} == {"layer 2", "layer 3", "layer 4"}
    assert [step.status for step in steps if step.id in ("all", "service")] == [Status.SKIP] * 2


def test_a_flipped_bit_in_an_expert_is_found_by_its_digest(copy: Path) -> None:
    damage.keep_record(copy)
    assert tried(copy, "files")[0].status is Status.PASS
    damage.flip_bit(copy, f"{EXPERT}.3.w1.weight_packed", byte=100, bit=3)
    (step,) = tried(copy, "files")
    assert step.status is Status.FAIL
    assert "model-00001-of-000002.safetensors" in step.detail


def test_a_flipped_bit_in_an_expert_is_found_by_a_record_of_its_layer(
    copy: Path, truth: Path
) -> None:
    damage.flip_bit(copy, f"{EXPERT}.3.w2.weight_packed", byte=200, bit=3)
    (step,) = tried(copy, "layers", truth=str(truth))
    assert (step.status, broken(step)) == (Status.FAIL, "layer 1 as recorded")


def test_two_experts_in_each_other_s_place_are_found_by_a_record(copy: Path, truth: Path) -> None:
    damage.swap_values(copy, f"{EXPERT}.0.w1.weight_packed", f"{EXPERT}.1.w1.weight_packed")
    (step,) = tried(copy, "layers", truth=str(truth))
    assert (step.status, broken(step)) == (Status.FAIL, "layer 1 as recorded")


def test_two_tensors_under_each_other_s_name_are_found_by_their_shape(copy: Path) -> None:
    damage.swap_names(
        copy, f"{LAYER}.self_attn.f_a_proj.weight", f"{LAYER}.self_attn.b_proj.weight"
    )
    steps = climbed(copy, "files", "layers", keep_going=False)
    assert [step.status for step in steps] == [Status.FAIL, Status.SKIP]
    assert "self_attn.b_proj.weight: is BF16 [32, 128] instead of" in steps[0].detail
    assert steps[1].detail == "not run: files failed"


@pytest.mark.parametrize(
    ("name", "nan"),
    [
        (f"{LAYER}.self_attn.v_proj.weight", b"\xc0\x7f"),
        (f"{LAYER}.block_sparse_moe.gate.e_score_correction_bias", b"\x00\x00\xc0\x7f"),
        (f"{LAYER}.block_sparse_moe.experts.3.w1.weight_scale", b"\xff"),
    ],
)
def test_a_weight_that_is_no_number_is_named_wherever_it_is(
    copy: Path, name: str, nan: bytes
) -> None:
    damage.write(copy, name, nan + damage.read(copy, name)[len(nan) :])
    steps = tried(copy, "files", "layers", "all", "repeat")
    assert [step.status for step in steps] == [Status.PASS, *[Status.FAIL] * 3]
    for step in steps[1:]:
        assert f"{name} holds a value that is no finite number" in step.detail


def test_a_scale_that_is_no_number_is_found_in_its_expert(copy: Path) -> None:
    name = f"{EXPERT}.0.w3.weight_scale"
    damage.write(copy, name, b"\xff" + damage.read(copy, name)[1:])
    (step,) = tried(copy, "expert")
    assert step.status is Status.FAIL
    assert "w3" in step.detail


def test_a_tokenizer_that_lost_its_end_is_found_before_any_weight_is_read(copy: Path) -> None:
    lines = (copy / "tiktoken.model").read_text().splitlines()
    (copy / "tiktoken.model").write_text("\n".join(lines[:-7]))
    (step,) = tried(copy, "files")
    assert step.status is Status.FAIL
    assert "tiktoken.model is not a tokenizer of Kimi K3: it has 312 tokens" in step.detail
    assert step.detail.endswith("instead of 319")


def test_a_broken_tokenizer_is_red_in_every_step_that_needs_it(copy: Path) -> None:
    (copy / "tokenizer_config.json").write_text("{}")
    steps = tried(copy, "files", "blocks", "service")
    assert [step.status for step in steps] == [Status.FAIL, Status.PASS, Status.FAIL]
    assert "tokenizer_config.json is not a tokenizer of Kimi K3" in steps[0].detail


def test_a_step_that_hangs_is_ended_and_the_next_one_runs(copy: Path) -> None:
    (copy / "tiktoken.model").unlink()
    os.mkfifo(copy / "tiktoken.model")  # to be read by nobody's writing: it never answers
    steps = climbed(copy, "files", "expert", timeout_s=45)
    assert [step.status for step in steps] == [Status.FAIL, Status.PASS]
    assert "hangs: no answer within 45 s" in steps[0].detail


def runs_steps(process: psutil.Process) -> bool:
    try:
        return "k31ctl.smoke.worker" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def test_a_process_that_dies_is_a_result(copy: Path) -> None:
    (copy / "tiktoken.model").unlink()
    os.mkfifo(copy / "tiktoken.model")

    def kill() -> None:
        pause = threading.Event()
        while not (steps := [child for child in psutil.Process().children() if runs_steps(child)]):
            pause.wait(0.05)
        steps[0].kill()

    thread = threading.Thread(target=kill)
    thread.start()
    (step,) = climbed(copy, "files")
    thread.join()
    assert step.status is Status.FAIL
    assert "died of signal 9 (SIGKILL)" in step.detail


def test_a_device_that_is_not_here_is_red_with_a_remedy(whole: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    rungs = chosen_rungs(only=("identity",), skip=())
    (step,) = climb(Task(folder=str(whole), device="cuda"), rungs, keep_going=False, timeout_s=None)
    assert step.status is Status.FAIL
    assert "sees no CUDA device" in step.detail
    assert "--device cpu" in step.notes[0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_watcher_that_ends_takes_its_child_along(copy: Path, number: int, code: int) -> None:
    (copy / "tiktoken.model").unlink()
    os.mkfifo(copy / "tiktoken.model")
    command = [sys.executable, "-m", "k31ctl", "smoke", str(copy), "--only", "files"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as watcher:
        pause, this = threading.Event(), psutil.Process(watcher.pid)
        while not (children := this.children()):
            pause.wait(0.05)
        watcher.send_signal(number)
        assert watcher.wait() == code
    psutil.wait_procs(children, timeout=60)
    assert not any(child.is_running() for child in children)
