"""MXFP4 and MXFP8 against three libraries, on every byte and every scale that a file may hold."""

import numpy as np
import pytest
import torch
from torch import Tensor

from k31ctl.engine.mxfp4 import PackedLinear, dequantise, mxfp8_rounded
from tests.engine.oracles import oracle
from tests.engine.runs import F32


def packed(*, rows: int = 64, groups: int = 16) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(1)
    values = torch.randint(0, 256, (rows, groups * 16), generator=draw, dtype=torch.uint8)
    values[:16, :16] = torch.arange(256, dtype=torch.uint8).view(16, 16)
    return values, torch.randint(0, 255, (rows, groups), generator=draw, dtype=torch.uint8)


def test_values_are_those_of_ml_dtypes() -> None:
    ml_dtypes = oracle("ml_dtypes")
    values, scales = packed()
    codes = np.stack([values.numpy() & 15, values.numpy() >> 4], axis=-1).reshape(64, -1)
    number = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    scale = scales.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
    with np.errstate(over="ignore"):
        expected = number * scale.repeat(32, axis=-1)
    np.testing.assert_array_equal(dequantise(values, scales, dtype=torch.float32), expected)


@pytest.mark.filterwarnings("ignore")
def test_values_are_those_of_torchao() -> None:
    mx = oracle("torchao.prototype.mx_formats.mx_tensor")
    values, scales = packed()
    scales = scales.clamp(min=1)
    expected = mx.to_dtype(
        values, scales.view(torch.float8_e8m0fnu), torch.float4_e2m1fn_x2, 32, torch.float32
    )
    torch.testing.assert_close(
        dequantise(values, scales, dtype=torch.float32), expected, rtol=0, atol=0
    )


@pytest.mark.filterwarnings("ignore")
def test_values_are_those_of_compressed_tensors() -> None:
    helpers = oracle("compressed_tensors.compressors.nvfp4.helpers")
    scaling = oracle("compressed_tensors.compressors.mx_utils")
    values, scales = packed()
    scales = scales.clamp(1, 252)
    number = helpers.unpack_fp4_from_uint8(values, 64, 512, dtype=torch.float32)
    scale = torch.exp2(scales.float() - 127)
    assert hasattr(scaling, "__file__")
    expected = number.view(64, 16, 32) * scale[..., None]
    found = dequantise(values, scales, dtype=torch.float32)
    torch.testing.assert_close(found, expected.view(64, 512), rtol=1e-6, atol=0)


def test_the_smallest_scale_is_a_number_and_the_largest_is_none() -> None:
    values = torch.full((1, 32), 0x22, dtype=torch.uint8)
    found = dequantise(values, torch.tensor([[0, 255]], dtype=torch.uint8), dtype=torch.float32)
    assert found[0, 0] == 2.0**-127
    assert found[0, 32:].isnan().all()


def test_a_packed_product_is_the_product_of_the_values() -> None:
    values, scales = packed()
    scales = scales % 8 + 120
    x = torch.randn(5, 512, generator=torch.Generator().manual_seed(2))
    gate, up = PackedLinear([(values, scales), (values, scales)], F32).split(x)
    torch.testing.assert_close(gate, x @ dequantise(values, scales, dtype=torch.float32).T)
    assert torch.equal(gate, up)


@pytest.mark.filterwarnings("ignore")
def test_mxfp8_activations_are_those_of_torchao_with_scales_rounded_up() -> None:
    mx = oracle("torchao.prototype.mx_formats.mx_tensor")
    config = oracle("torchao.prototype.mx_formats.config")
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(64, 128, generator=draw) * torch.exp2(torch.arange(64.0)[:, None] - 32)
    x[0, :32], x[1, 5] = 448.0, 1e4
    rule = config.ScaleCalculationMode.RCEIL
    scale, data = mx.to_mx(x, torch.float8_e4m3fn, 32, rule)
    expected = mx.to_dtype(data, scale, torch.float8_e4m3fn, 32, torch.float32)
    torch.testing.assert_close(mxfp8_rounded(x), expected, rtol=0, atol=0)
