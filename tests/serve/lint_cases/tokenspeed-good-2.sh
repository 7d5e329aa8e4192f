#!/bin/bash
set -euo pipefail
ts serve moonshotai/Kimi-K3 --trust-remote-code --kv-cache-dtype fp8 --mm-encoder-tp-mode data --disable-kvstore --tensor-parallel-size 8 --ep-size 8 --moe-backend flashinfer_trtllm --max-model-len 32768 --gpu-memory-utilization 0.94 --max-num-seqs 32
