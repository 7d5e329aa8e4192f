#!/bin/bash
set -euo pipefail
export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0 SGLANG_K3_ATTN_RES_MODE=1
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 32 --ep-size 32 --moe-runner-backend marlin --decode-attention-backend flashmla --nnodes 4 --node-rank 0 --dist-init-addr 10.0.0.1:20000 --dist-timeout 3600 --mem-fraction-static 0.85
