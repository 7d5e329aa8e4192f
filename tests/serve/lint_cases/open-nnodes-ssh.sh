#!/usr/bin/env bash
set -euo pipefail
export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
ssh "$WORKER" bash -c "vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 16 --nnodes \$NN \
  --node-rank \$RANK --master-addr \$HEAD --disable-flashinfer-autotune"
