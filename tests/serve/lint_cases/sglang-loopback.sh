#!/bin/bash
set -euo pipefail
export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 16 --nnodes 2 --node-rank 0 --dist-init-addr 127.0.0.1:20000 --watchdog-timeout 3600
