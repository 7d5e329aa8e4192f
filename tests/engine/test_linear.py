"""Products with weights in oneDNN's own order are the products with the weights themselves."""

import pytest
import torch

from k31ctl.engine.linear import Form, Linear
from k31ctl.engine.tensors import Kernels, Target
from tests.engine.runs import CPU, F32, error


@pytest.mark.parametrize("rows", [1, 2, 8, 600])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_order_of_the_weights_changes_nothing_but_rounding(
    rows: int, dtype: torch.dtype
) -> None:
    draw = torch.Generator().manual_seed(1)
    first, second = (torch.randn(n, 96, generator=draw) for n in (64, 40))
    x = torch.randn(rows, 96, generator=draw).to(dtype)
    linear = Linear([first, second], Target(dtype=dtype, device=CPU))
    tolerance = 1e-6 if dtype == torch.float32 else 1e-2
    for found, weight in zip(linear.split(x), (first, second), strict=True):
        expected = x.double() @ weight.to(dtype).double().T
        assert found.dtype == dtype
        assert error(found.double(), expected) < tolerance


def test_bf16_and_mxfp4_weights_are_kept_exactly_in_half_the_bytes() -> None:
    draw = torch.Generator().manual_seed(1)
    weight = torch.randn(64, 96, generator=draw).bfloat16().float()
    weight[0, :3] = torch.tensor([1e-9, -3e-5, 0.0]).bfloat16().float()
    linear = Linear([weight], F32)
    assert linear.form is Form.HALF
    assert linear.num_bytes == 64 * 96 * 2
    # One column at a time: each value itself, to a thousandth of float32's own rounding.
    found = linear(torch.eye(96)).T
    assert float((found - weight).abs().max()) < 2.0**-34
    assert torch.equal(found[weight.abs() > 1e-8], weight[weight.abs() > 1e-8])


@pytest.mark.parametrize("value", [1 / 3, 2.0**-30, float("inf")])
def test_weights_that_float16_would_change_stay_in_float32(value: float) -> None:
    weight = torch.ones(8, 16)
    weight[3, 5] = value * (1 + 2**-12)
    linear = Linear([weight], F32)
    assert (linear.form is Form.HALF) == (value == 2.0**-30)  # lost: 2^-49 of the largest
    assert linear.num_bytes == 8 * 16 * (2 if linear.form is Form.HALF else 4)


def test_weights_stay_as_they_were_where_that_is_asked_for() -> None:
    weight = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    plain = Target(dtype=torch.float32, device=CPU, kernels=Kernels.PLAIN)
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(2))
    assert Linear([weight], plain).form is Form.PLAIN
    assert torch.equal(Linear([weight], plain)(x), torch.nn.functional.linear(x, weight))
    assert error(Linear([weight], F32)(x), x @ weight.T) < 1e-6
