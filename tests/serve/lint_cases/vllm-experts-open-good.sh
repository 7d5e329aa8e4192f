#!/usr/bin/env bash
set -euo pipefail
export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 16 --max-model-len 32768 --gpu-memory-utilization 0.97 --max-num-seqs 5 --moe-backend "$EXPERTS" --nnodes 2 --node-rank "$RANK" --master-addr "$HEAD" --disable-flashinfer-autotune
