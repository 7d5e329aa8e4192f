#!/bin/bash
set -euo pipefail
export GLOO_SOCKET_IFNAME=eth0 NCCL_SOCKET_IFNAME=eth0 SGLANG_OPT_DEEPGEMM_MEGA_MOE_NUM_MAX_TOKENS_PER_RANK=1024
python3 -m sglang.launch_server --model-path moonshotai/Kimi-K3 --trust-remote-code --reasoning-parser kimi_k3 --tool-call-parser kimi_k3 --tp-size 16 --ep-size 16 --attn-dp-size 4 --enable-dp-lm-head --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:20000 --watchdog-timeout 3600 --moe-a2a-backend megamoe --moe-runner-backend deep_gemm --chunked-prefill-size 16384
