#!/bin/bash
set -euo pipefail
export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0
exec vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8 -dp 2 --data-parallel-size-local 1 --data-parallel-hybrid-lb --headless --data-parallel-address 10.0.0.1
