"""The chunks of Triton against the recurrence of torch: odd sizes, slow and violent decay."""

import sys

import torch

from k31ctl.engine import kda
from k31ctl.engine.kernels.kda_chunk import kda_chunked

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
draw = torch.Generator().manual_seed(1)
for B, T, H, K, V, fastest in (
    (1, 20, 2, 24, 40, 5.0),
    (2, 17, 1, 16, 16, 0.01),
    (1, 18, 1, 16, 16, 900.0),
):
    q, k, g = (torch.randn(B, T, H, K, generator=draw) for _ in range(3))
    v, state = torch.randn(B, T, H, V, generator=draw), torch.randn(B, H, K, V, generator=draw)
    beta = torch.rand(B, T, H, generator=draw)
    q, k = kda.unit(q), kda.unit(k)
    q, k, v, beta = (x.to(device) for x in (q, k, v, beta))
    # Of some tokens a head forgets all, of others next to nothing.
    g = (-fastest * torch.rand(g.shape, generator=draw) ** 8).to(device)
    ours, theirs = state.to(device).clone(), state.to(device).clone()
    found = kda_chunked(q, k, v, g, beta, ours, scale=K**-0.5)
    expected = kda.kda_recurrent(q, k, v, g, beta, theirs, scale=K**-0.5)
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-6)
    torch.testing.assert_close(ours, theirs, rtol=2e-5, atol=2e-6)
print("as plain")
