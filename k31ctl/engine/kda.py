"""Kimi Delta Attention: a state per head that decays by channel and is corrected by each token.

B sequences, T tokens of each, H heads, K key channels, V value channels, N chunks, C tokens of a
chunk, E channels of queries, keys and values together, J taps before the current one.
Source: Kimi Linear, arXiv:2510.26692; fla-core fla/ops/kda/naive.py states the recurrence.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from k31ctl.core.model import LinearAttention
from k31ctl.engine.kernels import choice
from k31ctl.engine.linear import Linear, rms_norm
from k31ctl.engine.tensors import Target, Tensors, joined

CHUNK = 64
# Within this many tokens e^(G_i - G_j) may be split into two factors: a bounded gate decays by at
# most 5 a token, and e^(15 * 5) is a float32. Unbounded gates are looked at first.
_SUB = 16
_MOST_EXPONENT = 80.0
_UNIT_EPS = 1e-6
_A_LOG_MULTIPLE = 128


def kda_decay(z: Tensor, A_log: Tensor, bound: float | None) -> Tensor:
    """The logarithm of the decay, always negative; z is [.., H, K] and A_log is [H].

    Formula: bound * sigmoid(exp(A_log) z), or -exp(A_log) softplus(z) where there is no bound.
    """
    rate = A_log.exp()[:, None]
    if bound is None:
        return -rate * functional.softplus(z)
    return bound * torch.sigmoid(rate * z)


def kda_recurrent(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    g_BTHK: Tensor,
    beta_BTH: Tensor,
    state_BHKV: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """Token by token: returns o [B, T, H, V] and leaves the new state in ``state_BHKV``.

    Without a scale it is K^-1/2.
    Formula: S = diag(e^g) S; S = S + k (beta (v - Sᵀk))ᵀ; o = scale * Sᵀq
    """
    decay_BTHK, out_BTHV = g_BTHK.exp(), torch.empty_like(v_BTHV)
    q_BTHK = _scale(q_BTHK, scale) * q_BTHK
    alike_BTH1 = (q_BTHK * k_BTHK).sum(-1, keepdim=True)
    # Both products with the old state at once; the decay goes to the vectors instead.
    both_BTH2K = torch.stack((k_BTHK, q_BTHK), dim=-2) * decay_BTHK[..., None, :]
    for t in range(v_BTHV.shape[1]):
        from_k_BHV, from_q_BHV = (both_BTH2K[:, t] @ state_BHKV).unbind(-2)
        delta_BHV = (v_BTHV[:, t] - from_k_BHV) * beta_BTH[:, t, :, None]
        out_BTHV[:, t] = torch.addcmul(from_q_BHV, alike_BTH1[:, t], delta_BHV)
        state_BHKV.mul_(decay_BTHK[:, t, ..., None])
        state_BHKV.addcmul_(k_BTHK[:, t, ..., None], delta_BHV[..., None, :])
    return out_BTHV


def kda_chunked(
    q_BTHK: Tensor,
    k_BTHK: Tensor,
    v_BTHV: Tensor,
    g_BTHK: Tensor,
    beta_BTH: Tensor,
    state_BHKV: Tensor,
    *,
    scale: float | None = None,
) -> Tensor:
    """The same as ``kda_recurrent``, with the tokens of a chunk solved together.

    Symbols, per chunk: G the sum of g so far, A[i,j] = beta_i k_i (e^(G_i - G_j) k_j) for j < i.
    Formula: (I + A) [u w] = beta [v, e^G k]; v' = u - w S; o = (q e^G) S + (q k e^(G_i - G_j)) v';
    S = diag(e^G_last) S + (k e^(G_last - G))ᵀ v'
    """
    T, scale = v_BTHV.shape[1], _scale(q_BTHK, scale)
    C = min(CHUNK, -(-T // _SUB) * _SUB)
    q, k, v, g = (_chunks(x, C) for x in (q_BTHK, k_BTHK, v_BTHV, g_BTHK))
    beta = _chunks(beta_BTH[..., None], C)
    # In float64: sums of hundreds would lose in float32 what their differences are about.
    G = g.double().cumsum(-2)
    qk, kk = _decayed_products(q * scale, k, G)
    grown = G.float().exp()
    right = torch.cat((v * beta, k * grown * beta), dim=-1)
    lower = (kk * beta).tril(-1)
    u, w = torch.linalg.solve_triangular(lower, right, upper=False, unitriangular=True).split(
        (v.shape[-1], k.shape[-1]), dim=-1
    )
    last = G[..., -1:, :]
    qk, q, k = qk.tril(), q * scale * grown, (k * (last - G).float().exp()).transpose(-1, -2)
    kept = last.float().exp().transpose(-1, -2)
    out = torch.empty_like(v)
    for n in range(v.shape[2]):
        new = u[:, :, n] - w[:, :, n] @ state_BHKV
        out[:, :, n] = q[:, :, n] @ state_BHKV + qk[:, :, n] @ new
        state_BHKV.mul_(kept[:, :, n]).add_(k[:, :, n] @ new)
    return out.flatten(2, 3)[:, :, :T].transpose(1, 2)


def _scale(q_BTHK: Tensor, scale: float | None) -> float:
    K = q_BTHK.shape[-1]
    return float(K**-0.5) if scale is None else scale


def _chunks(x_BTHX: Tensor, C: int) -> Tensor:
    """[B, H, N, C, X], filled up with zeros: they decay nothing and add nothing."""
    missing = -x_BTHX.shape[1] % C
    x = functional.pad(x_BTHX, (0, 0, 0, 0, 0, missing)) if missing else x_BTHX
    return x.transpose(1, 2).unflatten(2, (-1, C)).contiguous()


def _decayed_products(q: Tensor, k: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """``x_i (e^(G_i - G_j) k_j)`` for x = q and x = k where j <= i; above, whatever comes out.

    Rows of a sub-chunk are scaled by e^(G_i - F) and columns by e^(F - G_j), F being its first G.
    Columns before it give exponents below zero. Inside it, where a head forgets so fast that they
    would pass ``_MOST_EXPONENT``, its differences are taken one by one.
    """
    C = G.shape[-2]
    products, both = q.new_zeros(2, *G.shape[:-1], C), torch.stack((q, k))
    first = G[..., ::_SUB, :]
    wild = (first - G[..., _SUB - 1 :: _SUB, :]).amax(-1) > _MOST_EXPONENT
    for begin in range(0, C, _SUB):
        end = begin + _SUB
        F, rows = first[..., begin // _SUB, None, :], both[..., begin:end, :]
        scaled = rows * (G[..., begin:end, :] - F).float().exp()
        growth = (F - G[..., :end, :]).float().clamp(max=_MOST_EXPONENT).exp()
        products[..., begin:end, :end] = scaled @ (k[..., :end, :] * growth).transpose(-1, -2)
        if (fast := wild[..., begin // _SUB]).any():
            g, columns = G[fast][:, begin:end], k[fast][:, None, begin:end]
            decayed = (g[:, :, None] - g[:, None]).clamp(max=0).float().exp() * columns
            pairs = (rows[:, fast][:, :, :, None] * decayed).sum(-1)
            products[:, fast, begin:end, begin:end] = pairs
    return products[0], products[1]


def unit(x: Tensor) -> Tensor:
    """Each head's vector at length one, up to an eps inside the root."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _UNIT_EPS)


class KdaLayer:
    """Projections, short convolutions, the recurrence, and the gated norm of its output."""

    def __init__(
        self,
        tensors: Tensors,
        shape: LinearAttention,
        *,
        hidden: int,
        eps: float,
        decay_bound: float | None,
        target: Target,
    ) -> None:
        H, d, J = shape.num_heads, shape.head_dim, shape.conv_kernel_size
        self._shape, self._eps, self._decay_bound = shape, eps, decay_bound
        taken = [tensors.take(f"{name}_proj.weight", H * d, hidden) for name in "qkv"]
        taken += [tensors.take("f_a_proj.weight", d, hidden)]
        taken += [tensors.take("b_proj.weight", H, hidden)]
        self._from_low_rank = None
        if shape.full_rank_gate:
            taken += [tensors.take("g_proj.weight", H * d, hidden)]
        else:
            taken += [tensors.take("g_a_proj.weight", d, hidden)]
            low = tensors.take("g_b_proj.weight", H * d, d)
            self._from_low_rank = Linear([low], target)
        self._in = Linear(taken, target)
        self._in.widths[:3] = [3 * H * d]  # read by the same convolution
        self._decay = Linear([tensors.take("f_b_proj.weight", H * d, d)], target)
        self._out = Linear([tensors.take("o_proj.weight", hidden, H * d)], target)
        taps = [tensors.take(f"{name}_conv1d.weight", H * d, 1, J) for name in "qkv"]
        self._taps_JE = target.exact(joined(taps)[:, 0].T.contiguous())
        # Stored as [1, 1, H, 1], or filled up with zeros to a multiple of 128.
        forms = ((H,), (1, 1, H, 1), (-(-H // _A_LOG_MULTIPLE) * _A_LOG_MULTIPLE,))
        self._A_log_H = target.exact(tensors.take_one_of("A_log", *forms).flatten()[:H])
        self._dt_bias_HK = target.exact(tensors.take("dt_bias", H * d)).view(H, d)
        self._norm_V = target.exact(tensors.take("o_norm.weight", d))
        self._recurrent: Callable[..., Tensor] = kda_recurrent
        self._chunked: Callable[..., Tensor] = kda_chunked
        if choice(target).uses_triton:
            from k31ctl.engine.kernels import kda, kda_chunk  # noqa: PLC0415 - imports Triton

            self._recurrent, self._chunked = kda.kda_recurrent, kda_chunk.kda_chunked

    def __call__(self, x_BTD: Tensor, conv_BJE: Tensor, state_BHKV: Tensor) -> Tensor:
        """B sequences of T tokens each; both parts of their memory are updated in place.

        ``conv_BJE`` holds the last inputs of the convolutions, ``state_BHKV`` is float32.
        """
        B, T, _ = x_BTD.shape
        H, d = self._shape.num_heads, self._shape.head_dim
        u, low, beta, gate = self._in.split(x_BTD.flatten(0, 1))
        z = self._decay(low).view(B, T, H, d).float() + self._dt_bias_HK
        g_BTHK = kda_decay(z, self._A_log_H, self._decay_bound)
        beta_BTH = torch.sigmoid(beta.float()).view(B, T, H)
        qkv = self._convolved(u.view(B, T, -1), conv_BJE).view(B, T, 3, H, d)
        q, k = unit(qkv[:, :, :2]).unbind(2)
        core = self._recurrent if T == 1 else self._chunked
        o_BTHV = core(q, k, qkv[:, :, 2], g_BTHK, beta_BTH, state_BHKV, scale=d**-0.5)
        gate = gate if self._from_low_rank is None else self._from_low_rank(gate)
        gated = rms_norm(o_BTHV, self._norm_V, self._eps) * torch.sigmoid(
            gate.float().view(B, T, H, d)
        )
        return self._out(gated.to(x_BTD.dtype).view(B * T, H * d)).view(B, T, -1)

    def _convolved(self, u_BTE: Tensor, conv_BJE: Tensor) -> Tensor:
        """Causal and by channel, the last tap being the current token; SiLU in every model."""
        T = u_BTE.shape[1]
        window = torch.cat((conv_BJE, u_BTE), dim=1)
        conv_BJE.copy_(window[:, T:])
        if T == 1:
            return functional.silu((window * self._taps_JE).sum(1))
        out = window[:, :T] * self._taps_JE[0]
        for j in range(1, len(self._taps_JE)):
            out = torch.addcmul(out, window[:, j : j + T], self._taps_JE[j])
        return functional.silu(out)
