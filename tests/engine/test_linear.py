"""Products with weights in oneDNN's own order are the products with the weights themselves."""

import pytest
import torch

from k31ctl.engine.linear import Form, Linear
from k31ctl.engine.tensors import Target
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


def test_weights_stay_as_they_were_where_that_is_asked_for() -> None:
    weight = torch.randn(8, 16, generator=torch.Generator().manual_seed(1))
    plain = Target(dtype=torch.float32, device=CPU, reordered=False)
    x = torch.randn(5, 16, generator=torch.Generator().manual_seed(2))
    assert Linear([weight], plain).form is Form.PLAIN
    assert torch.equal(Linear([weight], plain)(x), torch.nn.functional.linear(x, weight))
    assert error(Linear([weight], F32)(x), x @ weight.T) < 1e-6
