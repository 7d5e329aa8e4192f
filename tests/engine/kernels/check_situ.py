"""SiTU of Triton against SiTU of torch."""

import sys

import torch

from k31ctl.engine import linear
from k31ctl.engine.kernels.situ import situ

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
draw = torch.Generator().manual_seed(1)
for size in ((3, 700), (1, 1), (5, 1024)):
    gate, up = (40 * torch.randn(*size, generator=draw) ** 3 for _ in range(2))
    gate, up = gate.to(device), up.to(device)
    for bound in (25.0, None):
        for dtype, tolerance in ((torch.float32, 1e-6), (torch.bfloat16, 1e-2)):
            g, u = gate.to(dtype), up.to(dtype)
            found = situ(g, u, gate_bound=4.0, up_bound=bound)
            expected = linear.situ(g, u, gate_bound=4.0, up_bound=bound)
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=1e-7)
print("as plain")
