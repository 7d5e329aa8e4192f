#!/bin/bash
set -euo pipefail
export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0 VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1800
exec vllm serve moonshotai/Kimi-K3 --trust-remote-code --tool-call-parser kimi_k3 --enable-auto-tool-choice --reasoning-parser kimi_k3 -tp 8 -pp 2 --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --gpu-memory-utilization 0.95 --max-model-len 131072
