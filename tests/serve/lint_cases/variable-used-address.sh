#!/usr/bin/env bash
set -euo pipefail
export NCCL_SOCKET_IFNAME=eth0 GLOO_SOCKET_IFNAME=eth0
export SGLANG_DIST_ADDR=10.1.1.1:20000
exec python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 16 --nnodes 2 --node-rank 0 \
  --dist-init-addr "${SGLANG_DIST_ADDR}" --watchdog-timeout 3600
