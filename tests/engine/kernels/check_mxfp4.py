"""Packed products of Triton against unpacked ones of torch; every byte, and the odd scales."""

import sys

import torch

from k31ctl.engine.kernels.mxfp4 import grouped, grouped_plain

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
draw = torch.Generator().manual_seed(1)
for R, C, counts in ((40, 96, [3, 0, 17, 1]), (32, 64, [0, 0, 0, 1])):
    packed = torch.randint(0, 256, (4, R, C // 2), generator=draw, dtype=torch.uint8)
    scale = torch.randint(118, 130, (4, R, C // 32), generator=draw, dtype=torch.uint8)
    x = torch.randn(sum(counts), C, generator=draw)
    x, packed, scale = (part.to(device) for part in (x, packed, scale))
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 1e-2)):
        found = grouped(x.to(dtype), packed, scale, counts).float()
        expected = grouped_plain(x.to(dtype), packed, scale, counts).float()
        assert float((found - expected).abs().max() / expected.abs().max()) < tolerance
# One column at a time shows each value itself.
packed = torch.arange(256, dtype=torch.uint8, device=device).view(1, 16, 16)
unit = torch.eye(32, device=device)
for code in (0, 1, 127, 252):
    scale = torch.full((1, 16, 1), code, dtype=torch.uint8, device=device)
    found, expected = (f(unit, packed, scale, [32]) for f in (grouped, grouped_plain))
    assert torch.equal(found, expected), code
scale = torch.full((1, 16, 1), 255, dtype=torch.uint8, device=device)
assert grouped(unit, packed, scale, [32]).isnan().all()
print("as plain")
