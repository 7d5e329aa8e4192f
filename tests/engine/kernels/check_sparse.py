"""Sparse latent attention of Triton against that of torch; some tokens have fewer to look at."""

import sys

import torch

from k31ctl.engine.kernels.sparse import sparse, sparse_plain

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
draw = torch.Generator().manual_seed(1)
for T, H, R, P, L, S in ((3, 4, 32, 16, 50, 21), (1, 18, 24, 8, 9, 4)):
    query, seen = torch.randn(T, H, R + P, generator=draw), torch.randn(L, R + P, generator=draw)
    chosen = torch.stack([torch.randperm(L, generator=draw)[:S] for _ in range(T)])
    chosen[0, 2:] = -1
    query, seen, chosen = (x.to(device) for x in (query, seen, chosen))
    found, expected = (f(query, seen, chosen, 0.2, R) for f in (sparse, sparse_plain))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
print("as plain")
