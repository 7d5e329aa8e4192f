#!/bin/bash
set -euo pipefail
export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0
exec vllm serve moonshotai/Kimi-K3.1-Pro --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 32 --nnodes 4 --node-rank 0 --master-addr 10.0.0.1
