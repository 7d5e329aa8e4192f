#!/usr/bin/env bash
set -euo pipefail
export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 1 -dp 32 -ep --data-parallel-size-local 8 --data-parallel-start-rank 0 --data-parallel-address 10.1.1.1 --moe-backend deep_gemm_mega_moe --disable-flashinfer-autotune
