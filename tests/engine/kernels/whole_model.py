"""A whole model of Triton's kernels against the one of torch, packed experts and all."""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from k31ctl.engine.checkpoint import load_model
from k31ctl.engine.tensors import Kernels
from tests.engine.runs import F32, error, in_pieces, prompt

torch.set_num_threads(1)
tokens, found = prompt(19), []
for kernels in (Kernels.TRITON, Kernels.PLAIN):
    target = replace(F32, kernels=kernels)
    model = load_model(Path(sys.argv[1]), target, packed_experts=True)
    print(*model.paths(), sep="\n")
    found.append(in_pieces(model, tokens, [18, 1]))
assert error(*found) < 5e-5, error(*found)
print("as plain")
