"""Index scores of Triton against those of torch, and the tokens that they choose."""

import sys

import torch

from k31ctl.engine import latent_attention
from k31ctl.engine.kernels.index import index_scores
from k31ctl.engine.ranking import highest

device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
draw = torch.Generator().manual_seed(1)
for T, L, Y, X in ((5, 37, 3, 32), (1, 16, 8, 24)):
    query, key = torch.randn(T, Y, X, generator=draw), torch.randn(L, X, generator=draw)
    given = [x.to(device) for x in (query, torch.randn(T, Y, generator=draw), key)]
    found, expected = index_scores(*given), latent_attention.index_scores(*given)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    ours, theirs = (highest(x, 7).sort().values for x in (found, expected))
    assert torch.equal(ours, theirs)
print("as plain")
