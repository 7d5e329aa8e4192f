"""The recurrence of Triton against that of torch, sizes that are no powers of two included."""

import sys

import torch

from k31ctl.engine import kda
from k31ctl.engine.kernels.kda import kda_recurrent

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
draw = torch.Generator().manual_seed(1)
for B, T, H, K, V in ((2, 1, 3, 32, 32), (1, 9, 2, 24, 40)):
    q, k, g = (torch.randn(B, T, H, K, generator=draw) for _ in range(3))
    v, state = torch.randn(B, T, H, V, generator=draw), torch.randn(B, H, K, V, generator=draw)
    beta = torch.rand(B, T, H, generator=draw)
    q, k, v, beta = (x.to(device) for x in (q / K**0.5, k / K**0.5, v, beta))
    g = -5 * g.sigmoid().to(device)
    ours, theirs = state.to(device).clone(), state.to(device).clone()
    found = kda_recurrent(q, k, v, g, beta, ours, scale=K**-0.5)
    expected = kda.kda_recurrent(q, k, v, g, beta, theirs, scale=K**-0.5)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
print("as plain")
