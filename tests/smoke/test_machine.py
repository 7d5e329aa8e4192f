"""What the steps know of devices, and what passes between the watcher and its child."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k31ctl.bench.images import square
from k31ctl.core.ladder import Measure, Status, Step
from k31ctl.smoke.task import Task, read_step, read_task, step_line, task_line

torch = pytest.importorskip("torch", reason="the extra engine is not installed")

from k31ctl.smoke import reference  # noqa: E402
from k31ctl.smoke.device_step import relative  # noqa: E402
from k31ctl.smoke.identity_step import built_for  # noqa: E402


@pytest.mark.parametrize(
    ("architectures", "capability", "built"),
    [
        (["sm_90", "sm_100"], (10, 3), True),  # code runs on later minor versions
        (["sm_80", "sm_90"], (10, 3), False),
        (["sm_80", "compute_90"], (10, 3), True),  # and PTX on anything later
        (["sm_103"], (10, 0), False),
        (["sm_90a", "sm_120"], (10, 3), False),
        (["sm_103a"], (10, 3), True),
        ([], (9, 0), False),
    ],
)
def test_a_torch_is_known_to_lack_code_for_a_gpu(
    architectures: list[str], capability: tuple[int, int], built: bool
) -> None:
    assert built_for(architectures, capability) is built


@given(st.text(), st.booleans(), st.tuples(st.integers(0, 92), st.integers(0, 92)) | st.none())
def test_a_task_goes_through_a_line(name: str, plain: bool, layers: tuple[int, int] | None) -> None:
    task = Task(folder=name, is_plain=plain, layers=layers, profiles=(name,), truth=name)
    line = task_line(task)
    assert line.count("\n") == 1
    assert read_task(line) == task


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False) | st.none())
def test_a_step_goes_through_a_line(text: str, value: float | None) -> None:
    measures = (Measure(name=text, value=value, at_most=1.0),)
    step = Step(
        id="files",
        name=text,
        status=Status.FAIL,
        seconds=1.5,
        detail=text,
        measures=measures,
        notes=(text,),
    )
    line = step_line(step)
    assert line.count("\n") == 1
    assert read_step(line) == step


def test_the_reference_spells_out_mxfp4_as_another_program_does() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="the extra oracles is not installed")
    numpy = pytest.importorskip("numpy", reason="the extra oracles is not installed")
    packed = torch.arange(256, dtype=torch.uint8).view(16, 16)
    scale = torch.arange(100, 116, dtype=torch.uint8).view(16, 1)
    codes = numpy.stack((packed.numpy() & 15, packed.numpy() >> 4), axis=-1).reshape(16, 32)
    values = codes.astype(numpy.uint8).view(ml_dtypes.float4_e2m1fn).astype(numpy.float64)
    powers = scale.numpy().view(ml_dtypes.float8_e8m0fnu).astype(numpy.float64)
    assert torch.equal(reference.dequantised(packed, scale), torch.from_numpy(values * powers))


def test_an_error_that_is_no_number_is_not_taken_for_a_small_one() -> None:
    good = torch.ones(4)
    bad = torch.tensor([1.0, torch.nan, 1.0, 1.0])
    assert relative(good, good) == 0
    assert not relative(bad, good) <= 1
    assert not relative(good, bad) <= 1


def test_the_picture_that_is_sent_is_one(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image", reason="the extra engine is not installed")
    path = tmp_path / "red.png"
    path.write_bytes(square(56, b"\xff\0\0"))
    with image.open(path) as picture:
        assert (picture.size, picture.getpixel((55, 55))) == ((56, 56), (255, 0, 0))
